-- M5: search contradicts the log
-- promise: G6
-- needs: ops, log
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'search')
--   and (select coalesce(sum(timed), 0) > 0 from record_counts where committed)
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'search' and type = 'ok'
-- nothing: no search was answered
-- holds: A search by time finds the message that it is to find, and a query within a time all of them.
-- rule: An answer that the committed logs' times of storing contradict: the first message at a time
--   or later, with a later one before it that was stored then too, or one known before the question
--   that is older; the last one until a time, likewise; the time of the first message that is left;
--   of a key within a time, a message that does not belong there, or without one that was known
--   before. A record whose time of storing is not told contradicts none.
-- source: RocketMQ DefaultMessageStore.getOffsetInQueueByTime, queryMessage
with placed as (
  select
    broker_group, topic, queue, offset, min(named) as value, min(stored_ms) as stored_ms,
    min_by(struct(uniq_key, keys), struct(coalesce(node, '') as node, index, slot)) as names
  from records
  where kind in ('message', 'final') and offset is not null
  group by broker_group, topic, queue, offset
),
asked as (
  select
    op, broker_group, topic, queue, offset, ref, key, from_ms, to_ms, t_invoke, t_complete, messages
  from ops
  where f = 'search' and type = 'ok'
),
-- What stands at the answer, at its neighbour, and at the queue's beginning.
beside as (
  select
    a.op, a.broker_group, a.topic, a.queue, a.offset, a.ref, a.from_ms, a.t_invoke,
    h.stored_ms as here_ms, hk.t_known as here_known, hk.op as here_by,
    b.stored_ms as before_ms,
    n.stored_ms as next_ms, nk.t_known as next_known, nk.op as next_by,
    q.min_offset, q.max_offset
  from asked a
  left join run_queues q
    on a.broker_group = q.broker_group and a.topic = q.topic and a.queue = q.queue
  left join placed h
    on a.broker_group = h.broker_group and a.topic = h.topic and a.queue = h.queue and a.offset = h.offset
  left join known_ends hk
    on a.broker_group = hk.broker_group and a.topic = hk.topic and a.queue = hk.queue and a.offset = hk.offset
  left join placed b
    on a.broker_group = b.broker_group and a.topic = b.topic and a.queue = b.queue and a.offset - 1 = b.offset
  left join placed n
    on a.broker_group = n.broker_group and a.topic = n.topic and a.queue = n.queue and a.offset + 1 = n.offset
  left join known_ends nk
    on a.broker_group = nk.broker_group and a.topic = nk.topic and a.queue = nk.queue and a.offset + 1 = nk.offset
  where a.ref in ('first', 'last') and a.offset is not null and a.from_ms is not null
),
by_time as (
  select
    *,
    case
      when ref = 'first' and here_ms < from_ms and here_known < t_invoke
        then 'an older message stands there'
      when ref = 'first' and before_ms >= from_ms and offset > coalesce(min_offset, cast(0 as bigint))
        then 'the message before it was stored then too'
      when ref = 'first' and offset > max_offset then 'there is no such place'
      when ref = 'last' and here_ms > from_ms and offset > coalesce(min_offset, cast(0 as bigint))
        then 'a newer message stands there'
      when ref = 'last' and next_ms <= from_ms and next_known < t_invoke
        then 'the message behind it was stored before, too'
      when ref = 'last' and offset > 0 and offset >= max_offset then 'there is no such place'
    end as problem
  from beside
),
by_begin as (
  select
    a.op, a.broker_group, a.topic, a.queue, a.from_ms, a.t_invoke, p.stored_ms, k.t_known,
    case
      when a.from_ms = -1 and k.t_known < a.t_invoke then 'there was a message'
      when a.from_ms <> -1 and p.offset is null then 'there is no message'
      when a.from_ms <> -1 and a.from_ms <> p.stored_ms then 'the first message has another time'
    end as problem
  from asked a
  join run_queues q
    on a.broker_group = q.broker_group and a.topic = q.topic and a.queue = q.queue and q.min_offset = 0
  left join placed p
    on a.broker_group = p.broker_group and a.topic = p.topic and a.queue = p.queue and p.offset = 0
  left join known_ends k
    on a.broker_group = k.broker_group and a.topic = k.topic and a.queue = k.queue and k.offset = 0
  left join first_index f on a.broker_group = f.broker_group
  where a.ref = 'earliest' and coalesce(f.first_index, cast(1 as bigint)) <= 1
),
-- Retention has taken the first messages of these queues: what is left, if anything, was there at any
-- time and bounds the answer.
by_retained as (
  select
    a.op, a.broker_group, a.topic, a.queue, q.floor, a.from_ms, a.t_invoke, p.stored_ms,
    case
      when a.from_ms = -1 and k.t_known < a.t_invoke then 'there was a message'
      when a.from_ms <> -1 and a.from_ms <= 0 then 'no message was stored then'
      when a.from_ms > p.stored_ms and k.t_known < a.t_invoke then 'an older message was there'
    end as problem
  from asked a
  join queues q
    on a.broker_group = q.broker_group and a.topic = q.topic and a.queue = q.queue and q.floor > 0
  left join placed p
    on a.broker_group = p.broker_group and a.topic = p.topic and a.queue = p.queue and q.floor = p.offset
  left join known_ends k
    on a.broker_group = k.broker_group and a.topic = k.topic and a.queue = k.queue and q.floor = k.offset
  where a.ref = 'earliest'
),
shown as (
  select m.op, m.broker_group, m.topic, m.queue, m.offset, m.value, m.key, m.from_ms, m.to_ms, m.t_invoke
  from messages m
  where m.f = 'search' and m.type = 'ok' and m.ref = 'range'
    and m.queue is not null and m.offset is not null
),
made_up as (
  select
    s.op, s.broker_group, s.topic, s.queue, s.offset, s.value, s.t_invoke, p.stored_ms,
    case
      when p.offset is null then 'it is not in the log'
      when p.value <> s.value then 'another message stands there'
      when p.stored_ms < s.from_ms or p.stored_ms > s.to_ms then 'it was stored at another time'
      when not coalesce(array_contains(p.names.keys, s.key), false)
        and coalesce(p.names.uniq_key, '') <> s.key then 'it has another key'
    end as problem
  from shown s
  left join placed p
    on s.broker_group = p.broker_group and s.topic = p.topic and s.queue = p.queue and s.offset = p.offset
  left join queues q
    on s.broker_group = q.broker_group and s.topic = q.topic and s.queue = q.queue
  left join cut_groups c on s.broker_group = c.broker_group
  where s.offset >= coalesce(q.floor, cast(0 as bigint))
    and (q.floor is not null or c.broker_group is null or p.offset is not null)
),
keyed as (
  select p.broker_group, p.topic, p.queue, p.offset, p.value, p.stored_ms, name
  from placed p lateral view explode(p.names.keys) e as name
),
owed as (
  select
    a.op, a.broker_group, a.topic, k.queue, k.offset, k.value, a.t_invoke, a.t_complete, k.stored_ms
  from asked a
  join keyed k on a.broker_group = k.broker_group and a.topic = k.topic and a.key = k.name
  join known_ends e
    on k.broker_group = e.broker_group and k.topic = e.topic and k.queue = e.queue and k.offset = e.offset
  left join queues q
    on k.broker_group = q.broker_group and k.topic = q.topic and k.queue = q.queue
  where a.ref = 'range' and k.stored_ms between a.from_ms and a.to_ms and e.t_known < a.t_invoke
    and k.offset >= coalesce(q.floor, cast(0 as bigint)) and coalesce(size(a.messages), 0) < 32
    and not coalesce(array_contains(transform(a.messages, m -> m.value), k.value), false)
),
deleted as (
  select distinct o.op, o.value
  from owed o
  join values_sent s on o.value = s.value
  join topic_changes c on o.broker_group = c.broker_group and o.topic = c.topic
  where c.f = 'delete_topic' and c.t_invoke <= o.t_complete and c.t_end >= s.t_sent
)
select
  op, 'by time' as search, broker_group, topic, queue, offset, problem, cast(null as string) as value,
  ref, from_ms as asked_ms, here_ms, before_ms, next_ms, t_invoke
from by_time
where problem is not null
union all
select
  op, 'beginning', broker_group, topic, queue, cast(0 as bigint), problem, null,
  'earliest', from_ms, stored_ms, null, null, t_invoke
from by_begin
where problem is not null
union all
select
  op, 'beginning', broker_group, topic, queue, floor, problem, null,
  'earliest', from_ms, stored_ms, null, null, t_invoke
from by_retained
where problem is not null
union all
select
  op, 'by key', broker_group, topic, queue, offset, problem, value,
  'range', null, stored_ms, null, null, t_invoke
from made_up
where problem is not null
union all
select
  o.op, 'by key', o.broker_group, o.topic, o.queue, o.offset, 'it was left out', o.value,
  'range', null, o.stored_ms, null, null, o.t_invoke
from owed o left anti join deleted d on o.op = d.op and o.value = d.value
