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
--   floor may have gone by retention.
-- source: Jepsen's Kafka workload, lost-write
with ends as (
  select
    broker_group, topic, queue, value, min(offset) as first_offset, max(offset) as last_offset,
    bool_or(was_read) as read_here
  from places
  group by broker_group, topic, queue, value
),
bounds as (
  select
    broker_group, topic, queue, max(first_offset) as bound,
    min_by(struct(first_offset as offset, value), struct(-first_offset, value)) as read_behind_it
  from ends
  where read_here
  group by broker_group, topic, queue
)
select
  e.broker_group, e.topic, e.queue, e.last_offset as offset, e.value, v.acked_op, b.read_behind_it
from ends e
join values_told v on e.value = v.value
join bounds b on e.broker_group = b.broker_group and e.topic = b.topic and e.queue = b.queue
left join queues q on e.broker_group = q.broker_group and e.topic = q.topic and e.queue = q.queue
where not e.read_here and v.must and not v.was_read
  and e.last_offset <= b.bound and e.last_offset >= coalesce(q.floor, 0)
