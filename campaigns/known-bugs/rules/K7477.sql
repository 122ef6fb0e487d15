-- K7477: a query by key after a kill left out what had been indexed
-- promise: none
-- needs: ops, faults, log
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'query')
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'query' and type = 'ok'
-- nothing: no query by key was answered
-- holds: A query by key after the first fault shows what was known two seconds before it.
-- rule: An answered query, asked after the first fault took effect, without a message of that key
--   that was known two seconds before the fault. What was known later may not be indexed yet by a
--   new leader, which S8 judges and RocketMQ does not promise.
-- source: RocketMQ issue 7477
with first_fault as (
  select min(t_effect) as t from faults where t_effect is not null
),
keyed as (
  select broker_group, topic, queue, offset, named as value, uniq_key as name
  from records
  where kind = 'message' and offset is not null and uniq_key is not null
  union
  select broker_group, topic, queue, offset, named, name
  from records lateral view explode(keys) e as name
  where kind = 'message' and offset is not null
)
select
  o.op, o.broker_group, o.topic, o.key, k.value, k.queue, k.offset, e.t_known, e.op as known_by,
  o.t_invoke
from ops o
join keyed k on o.broker_group = k.broker_group and o.topic = k.topic and o.key = k.name
join known_ends e
  on k.broker_group = e.broker_group and k.topic = e.topic and k.queue = e.queue and k.offset = e.offset
cross join first_fault f
where o.f = 'query' and o.type = 'ok' and o.t_invoke > f.t
  and e.t_known < f.t - cast(2000000000 as bigint)
  and not coalesce(array_contains(transform(o.messages, m -> m.value), k.value), false)
