-- Events of the traces by name and role.
select event, role, count(*) as events from raft group by event, role
