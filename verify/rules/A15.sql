-- A15: stale or lost
-- promise: G6
-- needs: ops
-- wants: log
-- applies: select (select own_system from run_settings)
--   or (select coalesce(sum(ops), 0) from op_counts
--     where type = 'ok' and (f = 'max_offset' or (f = 'poll' and final))) > 0
-- examined: select coalesce(sum(ops), 0) from op_counts
--   where type = 'ok' and (f = 'max_offset' or (f = 'poll' and final))
-- nothing: there was no final read, and no max offset was asked for
-- holds: What was seen once is seen again; reads of offsets are not stale.
-- rule: Lost: acknowledged or read before a final read was asked for that went over its offset without
--   it, and in no read after that. The final polls of one process that begin at a drained queue's
--   min_offset go over it whole, any other final poll from the offset asked for to its last message.
--   And a max_offset below what had been acknowledged, read or answered before it was asked for.
--   Before is by more than the clocks may differ.
-- source: Jepsen's set-full; promise G6
with settings as (
  select coalesce(max(clock_error_ns), cast(0 as bigint)) as error_ns from run_settings
),
polls as (
  select
    o.broker_group, o.topic, o.queue, o.process, o.op, o.t_invoke, o.offset as asked,
    array_max(transform(o.messages, m -> m.offset)) as last_offset,
    q.floor, q.max_offset,
    q.was_drained and min(o.offset) over (
      partition by o.broker_group, o.topic, o.queue, o.process
    ) <= q.min_offset as is_whole
  from ops o
  join queues q
    on o.broker_group = q.broker_group and o.topic = q.topic and o.queue = q.queue
  where o.f = 'poll' and o.type = 'ok' and o.final and o.offset is not null
),
wholes as (
  select broker_group, topic, queue, max(t_invoke) as t_read, max_by(op, struct(t_invoke, op)) as op
  from (
    select
      broker_group, topic, queue, process, min(t_invoke) as t_invoke,
      min_by(op, struct(t_invoke, op)) as op
    from polls
    where is_whole
    group by broker_group, topic, queue, process
  ) walks
  group by broker_group, topic, queue
),
parts as (
  select
    broker_group, topic, queue, op, t_invoke as t_read, from_offset, to_offset,
    explode(sequence(from_offset div 64, to_offset div 64)) as block
  from (
    select
      broker_group, topic, queue, op, t_invoke, greatest(asked, floor) as from_offset,
      last_offset as to_offset
    from polls
    where not is_whole
  ) single
  where from_offset <= to_offset
),
known as (
  select value, min(t_known) as t_known, min_by(op, struct(t_known, op)) as known_by
  from (
    select value, t_acked as t_known, op from acked where t_acked is not null
    union all
    select value, t_complete, op from reads where type = 'ok' and t_complete is not null
  ) told
  where value is not null
  group by value
),
last_reads as (
  select value, max(t_invoke) as t_last_read from reads group by value
),
stands as (
  select distinct broker_group, topic, queue, offset, value from standing
),
over_whole as (
  select s.*, w.t_read, w.op
  from stands s
  join queues q on s.broker_group = q.broker_group and s.topic = q.topic and s.queue = q.queue
  join wholes w on s.broker_group = w.broker_group and s.topic = w.topic and s.queue = w.queue
  where s.offset >= q.floor and s.offset < q.max_offset
),
over_part as (
  select s.*, p.t_read, p.op
  from stands s
  join parts p
    on s.broker_group = p.broker_group and s.topic = p.topic and s.queue = p.queue
    and s.offset div 64 = p.block
  where s.offset >= p.from_offset and s.offset <= p.to_offset
),
lost as (
  select
    c.broker_group, c.topic, c.queue, c.offset, c.value, k.t_known, k.known_by,
    max_by(c.op, struct(c.t_read, c.op)) as final_read
  from (select * from over_whole union all select * from over_part) c
  join known k on c.value = k.value
  left join last_reads r on c.value = r.value
  cross join settings s
  where k.t_known + s.error_ns < c.t_read and coalesce(r.t_last_read + s.error_ns < c.t_read, true)
  group by c.broker_group, c.topic, c.queue, c.offset, c.value, k.t_known, k.known_by
),
questions as (
  select broker_group, topic, queue, op, process, node, term, t_invoke, t_complete, offset
  from ops
  where f = 'max_offset' and type = 'ok' and t_complete is not null and offset is not null
),
ends as (
  select broker_group, topic, queue, t_known, offset + 1 as known_end, op from known_ends
  union all
  select broker_group, topic, queue, t_complete, offset, op from questions
),
line as (
  select
    e.broker_group, e.topic, e.queue, e.t_known + s.error_ns as at, e.known_end, 1 as is_end,
    e.op, cast(null as bigint) as asked
  from ends e cross join settings s
  left semi join questions q
    on e.broker_group = q.broker_group and e.topic = q.topic and e.queue = q.queue
  union all
  select broker_group, topic, queue, t_invoke, null, 0, op, offset from questions
),
compared as (
  select
    broker_group, topic, queue, is_end, op, asked,
    max(known_end) over (
      partition by broker_group, topic, queue order by at, is_end, op, known_end
      rows between unbounded preceding and current row
    ) as known_end
  from line
),
low as (
  select
    q.broker_group, q.topic, q.queue, q.op, q.process, q.node, q.term, q.t_invoke, q.t_complete,
    q.offset, c.known_end, min_by(e.op, struct(e.t_known, e.op)) as known_by
  from compared c
  join questions q on c.op = q.op
  join ends e
    on c.broker_group = e.broker_group and c.topic = e.topic and c.queue = e.queue
    and c.known_end = e.known_end
  where c.is_end = 0 and c.asked < c.known_end
  group by
    q.broker_group, q.topic, q.queue, q.op, q.process, q.node, q.term, q.t_invoke, q.t_complete,
    q.offset, c.known_end
)
select
  broker_group, topic, queue, offset, value, t_known, known_by, final_read,
  cast(null as bigint) as max_offset_op, cast(null as string) as process,
  cast(null as string) as node, cast(null as bigint) as term,
  cast(null as bigint) as t_invoke, cast(null as bigint) as t_complete,
  cast(null as bigint) as known_end
from lost
union all
select
  broker_group, topic, queue, offset, null, null, known_by, null, op, process, node, term,
  t_invoke, t_complete, known_end
from low
