-- A2: stored twice
-- promise: G2
-- needs: ops
-- wants: log
-- examined: select (select coalesce(sum(messages), 0) from op_counts where f in ('poll', 'deliver', 'pop'))
--   + (select coalesce(sum(records), 0) from record_counts where committed and kind in ('message', 'final'))
-- nothing: no operation read anything
-- holds: No message stands at two places.
-- rule: One value, or one uniq_key, at two places of one broker group's user topics. A message that
--   is stored twice is one violation, though its value and its key both tell of it.
-- source: Jepsen's Kafka workload, duplicate
with stands as (
  select s.broker_group, s.topic, s.queue, s.offset, s.value, s.uniq_key, s.op, s.node
  from standing s left anti join tried_twice t on s.value = t.value
  where s.on_user_topic
),
named as (
  select 'value' as same, value as name, * from stands
  union all
  select 'uniq_key' as same, uniq_key as name, * from stands where uniq_key is not null
),
twice as (
  select broker_group, same, name
  from named
  group by broker_group, same, name
  having min(topic) <> max(topic) or min(queue) <> max(queue) or min(offset) <> max(offset)
),
found as (
  select
    n.broker_group, n.same, n.name,
    min_by(
      struct(n.topic, n.queue, n.offset, n.value, n.op, n.node),
      struct(n.topic, n.queue, n.offset, n.value, coalesce(n.uniq_key, '') as uniq_key)
    ) as one,
    max_by(
      struct(n.topic, n.queue, n.offset, n.value, n.op, n.node),
      struct(n.topic, n.queue, n.offset, n.value, coalesce(n.uniq_key, '') as uniq_key)
    ) as other
  from named n left semi join twice t
    on n.broker_group = t.broker_group and n.same = t.same and n.name = t.name
  group by n.broker_group, n.same, n.name
)
select
  broker_group, one.value as value,
  max(same) as same,
  max_by(name, struct(same, name)) as name,
  max_by(one, struct(same, name)) as one,
  max_by(other, struct(same, name)) as other
from found
group by broker_group, one.value
