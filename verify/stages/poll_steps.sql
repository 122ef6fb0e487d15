-- Steps of a process from one offset to the next of a queue, within an ok poll (op_before = op) or
-- from one to the next, that go back or over a value at or above the queue's floor: that is
-- `skipped`. An assign that names the queue starts its position anew, as does one of its client where
-- the process has none of its own before, and a reset. One that polls for two groups is at two places.
-- Groups with tags pass over what has others.
with told as (
  select
    r.process, r.client_group, r.broker_group, r.topic, r.queue, r.op, r.place_in_op, r.offset,
    coalesce(g.of_some_tags, false) as of_some_tags
  from reads r left join run_groups g on r.client_group = g.client_group
  where r.f = 'poll' and r.type = 'ok' and r.offset is not null
  union all
  select
    process, client_group, broker_group, topic, queue, op, cast(-1 as int) as place_in_op,
    cast(null as bigint) as offset, false as of_some_tags
  from assignments
),
steps as (
  select *, lag(op) over reader as op_before, lag(offset) over reader as from_offset
  from told
  window reader as (
    partition by process, client_group, broker_group, topic, queue order by op, place_in_op
  )
),
leaps as (
  select process, broker_group, topic, queue, op, place_in_op, op_before, from_offset, offset as to_offset
  from steps
  where offset <> from_offset + 1 and not (of_some_tags and offset > from_offset)
),
between_polls as (
  select
    l.op, l.place_in_op, l.process, l.broker_group, l.topic, l.queue, o.client, o.client_group,
    b.t_invoke as t_from, o.t_complete as t_to
  from leaps l
  join ops o on l.op = o.op
  join ops b on l.op_before = b.op
  where l.op_before <> l.op
),
own_assigns as (
  select process, client_group, min(op) as op
  from assignments
  group by process, client_group
),
moved as (
  select p.op, p.place_in_op
  from between_polls p
  join assignments a
    on p.client = a.client and p.client_group = a.client_group
    and p.broker_group = a.broker_group and p.topic = a.topic and p.queue = a.queue
  left join own_assigns w on p.process = w.process and p.client_group = w.client_group
  where a.t_invoke <= p.t_to and a.t_until >= p.t_from and coalesce(w.op > p.op, true)
  union
  select p.op, p.place_in_op
  from between_polls p
  join reset_spans r
    on p.client_group = r.client_group
    and p.broker_group = r.broker_group and p.topic = r.topic and p.queue = r.queue
  where r.t_invoke <= p.t_to and r.t_until >= p.t_from and coalesce(r.client = p.client, true)
),
jumps as (
  select l.*
  from leaps l left anti join moved m on l.op = m.op and l.place_in_op = m.place_in_op
),
ahead as (
  select * from jumps where to_offset > from_offset
),
occupied as (
  select s.broker_group, s.topic, s.queue, s.offset, s.value
  from standing s
  left semi join ahead a
    on s.broker_group = a.broker_group and s.topic = a.topic and s.queue = a.queue
  left join queues q
    on s.broker_group = q.broker_group and s.topic = q.topic and s.queue = q.queue
  where s.offset >= coalesce(q.floor, 0)
),
line as (
  select
    broker_group, topic, queue, offset as at, offset as stands,
    cast(null as string) as process, cast(null as bigint) as op, cast(null as int) as place_in_op
  from occupied
  union all
  select broker_group, topic, queue, from_offset, null, process, op, place_in_op from ahead
),
next as (
  select
    process, op, place_in_op, broker_group, topic, queue,
    min(stands) over (
      partition by broker_group, topic, queue
      order by at desc, stands is not null, op, place_in_op
      rows between unbounded preceding and current row
    ) as skipped_offset
  from line
),
skips as (
  select j.*, n.skipped_offset
  from ahead j
  join next n
    on j.process = n.process and j.op = n.op and j.place_in_op = n.place_in_op
    and j.broker_group = n.broker_group and j.topic = n.topic and j.queue = n.queue
  where n.skipped_offset < j.to_offset
),
skipped as (
  select k.process, k.op, k.place_in_op, min(o.value) as value
  from skips k
  join occupied o
    on k.broker_group = o.broker_group and k.topic = o.topic and k.queue = o.queue
    and k.skipped_offset = o.offset
  group by k.process, k.op, k.place_in_op
)
select j.*, struct(k.skipped_offset as offset, v.value as value) as skipped
from ahead j
join skips k on j.process = k.process and j.op = k.op and j.place_in_op = k.place_in_op
join skipped v on j.process = v.process and j.op = v.op and j.place_in_op = v.place_in_op
union all
select j.*, cast(null as struct<offset:bigint, value:string>) as skipped
from jumps j
where j.to_offset <= j.from_offset
