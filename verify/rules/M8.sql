-- M8: reset to a wrong place
-- promise: G5
-- needs: ops
-- wants: log
-- applies: select coalesce(sum(timed), 0) > 0 from op_counts where f = 'reset' and type <> 'fail'
-- examined: select coalesce(sum(timed), 0) from op_counts where f = 'reset' and type = 'ok'
-- nothing: no reset by time was answered
-- holds: A reset by time sends a group to the first message of that time, and where it is not forced
--   never forward.
-- rule: An ok reset by time (from_ms; -1: to the end) that names no place, or one beyond the queue's
--   end; one behind a message that was stored then or later (to the end: that was sent only after
--   it had been answered); one at a message known before that is older (to the end: at any known
--   before), but for a reset that was not forced (ref no-force), where the group may have been
--   there. Or one that was not forced, to a place behind all where the group may have been.
-- source: RocketMQ AdminBrokerProcessor.resetOffset, Broker2Client.resetOffset (isForce)
with asked as (
  select
    o.op, o.client_group, o.broker_group, o.topic, o.queue, o.offset, o.from_ms, o.client,
    o.t_invoke, o.t_complete, coalesce(o.ref = 'no-force', false) as is_gentle,
    coalesce(q.min_offset, cast(0 as bigint)) as min_offset, q.max_offset
  from ops o
  left join run_queues q
    on o.broker_group = q.broker_group and o.topic = q.topic and o.queue = q.queue
  where o.f = 'reset' and o.type = 'ok' and o.from_ms is not null
),
-- Where administrators and members had sent the group: it is at the last that took effect.
steps as (
  select
    o.op, o.client_group, o.broker_group, o.topic, o.queue, o.offset, o.t_invoke,
    o.f = 'reset' as is_reset, o.type = 'ok' as is_acked, o.type = 'ok' as may_overwrite,
    case when o.type = 'ok' then o.t_complete else cast(9223372036854775807 as bigint) end as t_end
  from ops o
  where o.f = 'commit_offset' and o.type <> 'fail'
  union all
  -- Of an offset that rode on a poll nobody tells what became.
  select
    o.op, o.client_group, o.broker_group, o.topic, o.queue, o.commit_offset, o.t_invoke,
    false, false, false, cast(9223372036854775807 as bigint)
  from ops o
  where o.f = 'poll' and o.commit_offset is not null
  union all
  select
    g.op, g.client_group, g.broker_group, g.topic, g.queue, g.offset, g.t_invoke,
    true, g.type = 'ok', g.type = 'ok' and not g.by_member, g.t_end
  from group_resets g
),
before as (
  select
    a.op, s.op as step_op, s.offset, s.is_reset, s.is_acked and s.t_end < a.t_invoke as is_sure,
    s.may_overwrite and s.t_end < a.t_invoke as overwrites, s.t_invoke, s.t_end
  from asked a
  join steps s
    on a.client_group = s.client_group and a.broker_group = s.broker_group
    and a.topic = s.topic and a.queue = s.queue
  where s.op <> a.op and s.t_invoke < a.t_complete
),
-- While a reset has not been followed, commits count for nothing: only a reset takes its place.
overwritten as (
  select
    op,
    max(case when overwrites and is_reset then t_invoke end) as t_reset,
    max(case when overwrites then t_invoke end) as t_any
  from before
  group by op
),
stood as (
  select b.op, b.step_op, b.offset, b.is_sure
  from before b
  join overwritten w on b.op = w.op
  where b.t_end >= coalesce(case when b.is_reset then w.t_reset else w.t_any end, b.t_end)
),
known as (
  select
    op, count_if(is_sure) > 0 and count(*) = count(offset) as is_told, max(offset) as highest,
    coalesce(array_sort(collect_set(offset)), array()) as places
  from stood
  group by op
),
placed as (
  select broker_group, topic, queue, offset, min(stored_ms) as stored_ms
  from records
  where kind in ('message', 'final') and stored_ms is not null and offset is not null
  group by broker_group, topic, queue, offset
),
-- To the end: what was known there before, and what was sent only afterwards.
of_end as (
  select a.op, max(k.offset) as known_offset
  from asked a
  join known_ends k
    on a.broker_group = k.broker_group and a.topic = k.topic and a.queue = k.queue
    and k.offset >= a.offset and k.t_known < a.t_invoke
  where a.from_ms < 0
  group by a.op
),
begun as (
  select value, min(t_invoke) as t_begun
  from attempts
  where value is not null
  group by value
),
of_later as (
  select a.op, min(p.offset) as later_offset
  from asked a
  join standing p
    on a.broker_group = p.broker_group and a.topic = p.topic and a.queue = p.queue
    and p.offset < a.offset
  join begun b on p.value = b.value
  where a.from_ms < 0 and b.t_begun > a.t_complete
  group by a.op
),
compared as (
  select
    a.*, h.stored_ms as here_ms, b.stored_ms as before_ms, e.known_offset, l.later_offset,
    s.places, s.highest,
    case
      when a.from_ms < 0 then e.known_offset is not null
      else h.stored_ms < a.from_ms and hk.t_known < a.t_invoke
    end as is_before,
    case
      when a.from_ms < 0 then l.later_offset is not null
      else b.stored_ms >= a.from_ms and a.offset > a.min_offset
    end as is_behind,
    coalesce(array_contains(s.places, a.offset), false) or a.offset = a.min_offset as may_stand,
    coalesce(s.is_told and a.offset > s.highest and a.offset > a.min_offset, false) as is_forward
  from asked a
  left join placed h
    on a.broker_group = h.broker_group and a.topic = h.topic and a.queue = h.queue and a.offset = h.offset
  left join placed b
    on a.broker_group = b.broker_group and a.topic = b.topic and a.queue = b.queue and a.offset - 1 = b.offset
  left join known_ends hk
    on a.broker_group = hk.broker_group and a.topic = hk.topic and a.queue = hk.queue and a.offset = hk.offset
  left join of_end e on a.op = e.op
  left join of_later l on a.op = l.op
  left join known s on a.op = s.op
),
judged as (
  select
    *,
    case
      when offset is null then 'no place was named'
      when offset > max_offset then 'there is no such place'
      when is_behind then 'behind what belongs to it'
      when is_before and not (is_gentle and may_stand) then 'at what is older'
      when is_gentle and is_forward then 'forward, though it was not forced'
    end as problem
  from compared
)
select
  j.client_group, j.broker_group, j.topic, j.queue, j.op, j.problem, j.offset, j.from_ms, j.is_gentle,
  j.here_ms, j.before_ms, j.known_offset, j.later_offset, j.places as group_was_at, j.client,
  j.t_invoke, j.t_complete
from judged j
-- With its topic a group's offset goes, too.
left anti join topic_changes d
  on j.broker_group = d.broker_group and j.topic = d.topic and d.f = 'delete_topic'
where j.problem is not null
