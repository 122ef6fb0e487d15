-- How many ConsumeQueue units there are.
select count(*) as units from cq
