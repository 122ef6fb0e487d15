-- Creations and deletions of topics at broker groups that may have taken effect. `t_end` never comes
-- where the outcome is unknown.
select
  op, f, broker_group, topic, t_invoke, type = 'ok' as is_acked,
  case when type = 'ok' then t_complete else cast(9223372036854775807 as bigint) end as t_end,
  array_sort(transform(coalesce(assigned, array()), a -> a.queue)) as queues, status as perm
from ops
where f in ('create_topic', 'delete_topic') and type <> 'fail'
  and broker_group is not null and topic is not null
