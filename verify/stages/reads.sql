-- Messages that polls and deliveries showed.
select * from messages where f in ('poll', 'deliver')
