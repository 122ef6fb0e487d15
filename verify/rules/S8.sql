-- S8: query by key differs from the log
-- promise: G5
-- needs: ops, log
-- applies: select (select coalesce(sum(ops), 0) from op_counts where f = 'query') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'query' and type = 'ok'
-- nothing: no query was answered
-- holds: A query by key finds what is there, and nothing else.
-- rule: A query shows every committed message of its broker group and topic with that uniq_key or key
--   that was acknowledged, or read ok, before it was asked and stands where absence counts; nothing
--   that the committed log does not have there, and no message without that uniq_key or key. What
--   was sent before a deletion of the topic ended is owed to no query that ended behind its begin.
-- source: RocketMQ issue 7477
with queries as (
  select
    op, process, node, key, t_invoke, t_complete, broker_group, topic,
    transform(messages, m -> m.value) as shown
  from ops
  where f = 'query' and type = 'ok' and key is not null
),
kept as (
  select
    s.broker_group, s.topic, s.queue, s.offset, s.value,
    array_distinct(concat(array(coalesce(s.uniq_key, '')), coalesce(s.keys, array()))) as named,
    s.offset >= coalesce(q.floor, cast(0 as bigint)) as counts
  from stored s
  left join queues q
    on s.broker_group = q.broker_group and s.topic = q.topic and s.queue = q.queue
  where s.is_message
),
owed as (
  select
    q.op, q.process, q.node, q.key, q.t_invoke, q.broker_group, q.topic, k.value,
    min(k.queue) as queue, min_by(k.offset, struct(k.queue, k.offset)) as offset
  from (
    select broker_group, topic, queue, offset, value, name
    from kept lateral view explode(named) e as name
    where counts
  ) k
  join queries q on k.name = q.key and k.broker_group = q.broker_group and k.topic = q.topic
  where not coalesce(array_contains(q.shown, k.value), false)
  group by
    q.op, q.process, q.node, q.key, q.t_invoke, q.broker_group, q.topic, k.value
),
known as (
  select value, op, t_acked as t_known from acked
  union all
  select value, op, t_complete from reads where type = 'ok'
),
deleted as (
  select distinct o.op, o.value
  from owed o
  join queries q on o.op = q.op
  join values_sent s on o.value = s.value
  join topic_changes c on o.broker_group = c.broker_group and o.topic = c.topic
  where c.f = 'delete_topic' and c.t_invoke <= q.t_complete and c.t_end >= s.t_sent
),
left_out as (
  select
    o.op, o.process, o.node, o.key, o.t_invoke, o.broker_group, o.topic, o.queue, o.offset, o.value,
    min_by(struct(k.op as op, k.t_known as t_known), struct(k.t_known, k.op)) as known
  from known k
  join owed o on k.value = o.value
  left anti join deleted d on o.op = d.op and o.value = d.value
  where k.t_known < o.t_invoke
  group by
    o.op, o.process, o.node, o.key, o.t_invoke, o.broker_group, o.topic, o.queue, o.offset, o.value
),
shown as (
  select op, process, node, key, t_invoke, broker_group, topic, queue, offset, value
  from messages
  where f = 'query' and type = 'ok' and value is not null
    and broker_group is not null and topic is not null
),
-- All places of the value in that topic: what the query told of the place must be one of them.
compared as (
  select
    s.op, s.process, s.node, s.key, s.t_invoke, s.broker_group, s.topic, s.queue, s.offset, s.value,
    count_if(
      k.value is not null and k.queue = coalesce(s.queue, k.queue)
      and k.offset = coalesce(s.offset, k.offset)
    ) as places,
    count_if(
      k.queue = coalesce(s.queue, k.queue) and k.offset = coalesce(s.offset, k.offset)
      and (s.key is null or array_contains(k.named, s.key))
    ) as named_so
  from shown s
  left join kept k
    on s.broker_group = k.broker_group and s.topic = k.topic and s.value = k.value
  group by
    s.op, s.process, s.node, s.key, s.t_invoke, s.broker_group, s.topic, s.queue, s.offset, s.value
),
floored as (select broker_group, topic, max(floor) as floor from queues group by broker_group, topic),
made_up as (
  select
    c.op, c.process, c.node, c.key, c.t_invoke, c.broker_group, c.topic, c.queue, c.offset, c.value,
    case when c.places = 0 then 'not in the log' else 'another key' end as problem
  from compared c
  left join queues q
    on c.broker_group = q.broker_group and c.topic = q.topic and c.queue = q.queue
  left join floored f on c.broker_group = f.broker_group and c.topic = f.topic
  left join cut_groups g on c.broker_group = g.broker_group
  where c.named_so = 0
    -- What stands below a floor, or where none is told, may have been there when it was shown.
    and (
      c.places > 0
      or case
        when f.topic is null and g.broker_group is not null then false
        when c.offset is not null and c.queue is not null then c.offset >= coalesce(q.floor, cast(0 as bigint))
        else coalesce(q.floor, f.floor, cast(0 as bigint)) = 0
      end
    )
)
select
  op, value, problem, queue, offset, process, node, key, t_invoke, broker_group, topic,
  cast(null as struct<op:bigint, t_known:bigint>) as known
from made_up
union all
select
  op, value, 'left out', queue, offset, process, node, key, t_invoke, broker_group, topic, known
from left_out
