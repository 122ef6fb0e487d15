-- A4: lost write
-- promise: G1
-- needs: ops
-- wants: log
-- examined: select coalesce(sum(messages), 0) from op_counts
--   where f in ('poll', 'deliver', 'pop') and type = 'ok'
-- nothing: no operation read anything
-- holds: No message vanished from between others that were read.
-- rule: A value that must have committed, was never read, and stands before one that was. Offsets
--   take the part of dense ranks, for both order a queue alike; what stands only below the queue's
--   floor may have gone by retention, and what stands on a topic that was deleted behind it, and is
--   not there any more, with that. What a group with tags read shows nothing of what stands
--   before: it passes over what it does not want. Nor does what a group read of a queue in which it
--   was reset: it may have been sent over what stands before.
-- source: Jepsen's Kafka workload, lost-write
with ends as (
  select
    broker_group, topic, queue, value, min(offset) as first_offset, max(offset) as last_offset,
    bool_or(was_read) as read_here
  from places
  group by broker_group, topic, queue, value
),
-- Queues that groups with tags read, or in which a group was reset: there it counts who read what.
filtered as (
  select r.broker_group, r.topic, r.queue
  from reads r join run_groups g on r.client_group = g.client_group and g.of_some_tags
  union
  select broker_group, topic, queue from reset_spans
),
read_by_others as (
  select distinct r.broker_group, r.topic, r.queue, r.value
  from reads r
  left semi join filtered f
    on r.broker_group = f.broker_group and r.topic = f.topic and r.queue = f.queue
  left anti join run_groups g on r.client_group = g.client_group and g.of_some_tags
  left anti join reset_spans s
    on r.client_group = s.client_group
    and r.broker_group = s.broker_group and r.topic = s.topic and r.queue = s.queue
  where r.type = 'ok' and r.offset is not null
),
bounds as (
  select
    e.broker_group, e.topic, e.queue, max(e.first_offset) as bound,
    min_by(struct(e.first_offset as offset, e.value), struct(-e.first_offset, e.value)) as read_behind_it
  from ends e
  left join filtered f
    on e.broker_group = f.broker_group and e.topic = f.topic and e.queue = f.queue
  left join read_by_others o
    on e.broker_group = o.broker_group and e.topic = o.topic and e.queue = o.queue
    and e.value = o.value
  where e.read_here and (f.topic is null or o.value is not null)
  group by e.broker_group, e.topic, e.queue
),
found as (
  select
    e.broker_group, e.topic, e.queue, e.last_offset as offset, e.value, v.acked_op, b.read_behind_it
  from ends e
  join values_told v on e.value = v.value
  join bounds b on e.broker_group = b.broker_group and e.topic = b.topic and e.queue = b.queue
  left join queues q on e.broker_group = q.broker_group and e.topic = q.topic and e.queue = q.queue
  where not e.read_here and v.must and not v.was_read
    and e.last_offset <= b.bound and e.last_offset >= coalesce(q.floor, 0)
),
gone as (
  select distinct f.broker_group, f.topic, f.value
  from found f
  join values_sent s on f.value = s.value
  join topic_changes c on f.broker_group = c.broker_group and f.topic = c.topic
  left anti join run_queues q on f.broker_group = q.broker_group and f.topic = q.topic
  where c.f = 'delete_topic' and c.t_end >= s.t_sent
)
select f.*
from found f
left anti join gone g
  on f.broker_group = g.broker_group and f.topic = g.topic and f.value = g.value
