-- What answers about routes show of a topic at a broker group: those of name servers, and those of
-- the groups' own leaders (`by_owner`). `queues` is empty where there is no such topic; `leader` is
-- the first of the members shown, "-" where none leads.
select
  op, broker_group, topic, node, t_invoke, t_complete, coalesce(key = 'owner', false) as by_owner,
  array_sort(transform(assigned, a -> a.queue)) as queues, status as perm, ref as members,
  split(ref, ' ')[0] as leader
from ops
where f = 'route' and type = 'ok' and assigned is not null
  and broker_group is not null and topic is not null
