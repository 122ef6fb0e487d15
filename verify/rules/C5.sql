-- C5: missed by a broadcast member
-- promise: G1
-- needs: ops
-- applies: select (select count(*) from run_groups where kind = 'broadcast') > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'deliver') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'send' and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: Every member of a broadcast group got every acknowledged message since it joined.
-- rule: An acknowledged message that a member of a broadcast group was never delivered: one between the
--   first and the last that it was delivered of the queue; and where it held the queue to the end of
--   the drain, one behind the first. A member that was delivered nothing of a queue is owed what was
--   sent rebalance_ms after it had taken the queue, or later. Queues that were not drained are left
--   out, groups with tags, and what stands below the offset of a reset of the queue, a seek of the
--   member among them: it was sent over it.
-- source: RocketMQ MessageModel.BROADCASTING
with shown as (
  select distinct r.client_group, r.client, r.broker_group, r.topic, r.queue, r.offset
  from reads r
  join run_groups g on r.client_group = g.client_group and g.kind = 'broadcast'
  where r.f = 'deliver' and r.offset is not null
),
spans as (
  select
    client_group, client, broker_group, topic, queue,
    min(offset) as first_offset, max(offset) as last_offset
  from shown
  group by client_group, client, broker_group, topic, queue
),
-- The last assign of each member that had begun before the drain's end.
last_assigns as (
  select o.client_group, o.client, max(o.op) as op
  from ops o
  join run_groups g on o.client_group = g.client_group and g.kind = 'broadcast'
  cross join run_settings s
  where o.f = 'assign' and o.type <> 'fail' and o.t_invoke < s.drain_to
  group by o.client_group, o.client
),
-- A member that was there to the end leaves, or does something else, behind it.
lives as (
  select o.client, max(o.t_invoke) as t_last
  from ops o left semi join last_assigns l on o.client = l.client
  group by o.client
),
-- By group: a client may be a member of several.
taken as (
  select client_group, client, broker_group, topic, queue, min(t_until) as t_taken
  from assignments
  group by client_group, client, broker_group, topic, queue
),
held as (
  select distinct
    l.client_group, l.client, a.broker_group, a.topic, a.queue, t.t_taken
  from last_assigns l
  join assignments a on l.op = a.op
  join lives v on l.client = v.client
  join taken t
    on l.client_group = t.client_group and l.client = t.client
    and a.broker_group = t.broker_group and a.topic = t.topic and a.queue = t.queue
  cross join run_settings s
  where v.t_last >= s.drain_to
),
members as (
  select
    coalesce(p.client_group, h.client_group) as client_group,
    coalesce(p.client, h.client) as client,
    coalesce(p.broker_group, h.broker_group) as broker_group,
    coalesce(p.topic, h.topic) as topic,
    coalesce(p.queue, h.queue) as queue,
    p.first_offset, p.last_offset, h.t_taken
  from spans p
  full outer join held h
    on p.client_group = h.client_group and p.client = h.client
    and p.broker_group = h.broker_group and p.topic = h.topic and p.queue = h.queue
),
owed as (
  select
    m.client_group, m.client, a.broker_group, a.topic, a.queue, a.offset, a.value, a.op as acked_op,
    o.t_invoke as t_sent, m.first_offset, m.last_offset
  from acked_places a
  join ops o on a.op = o.op
  join members m
    on a.broker_group = m.broker_group and a.topic = m.topic and a.queue = m.queue
  join queues q
    on a.broker_group = q.broker_group and a.topic = q.topic and a.queue = q.queue
  join run_groups g on m.client_group = g.client_group
  where q.was_drained and a.offset >= q.floor and a.offset < q.max_offset and not g.of_some_tags
    and (
      (a.offset > m.first_offset and a.offset < m.last_offset)
      or (a.offset > m.last_offset and m.t_taken is not null)
      -- Of an assign of unknown outcome t_taken is the greatest time, to which nothing can be added.
      or (m.first_offset is null and o.t_invoke - g.rebalance_ns > m.t_taken)
    )
)
select
  w.client_group, w.client, w.broker_group, w.topic, w.queue, w.offset, w.value, w.acked_op,
  w.t_sent, w.first_offset, w.last_offset
from owed w
left anti join shown s
  on w.client_group = s.client_group and w.client = s.client
  and w.broker_group = s.broker_group and w.topic = s.topic and w.queue = s.queue
  and w.offset = s.offset
left anti join reset_spans r
  on w.client_group = r.client_group and coalesce(r.client = w.client, true)
  and w.broker_group = r.broker_group and w.topic = r.topic and w.queue = r.queue
  and coalesce(w.offset < r.offset, true)
