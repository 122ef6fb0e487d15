-- A8: sender goes back
-- promise: G3
-- needs: ops
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'send'
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'send' and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: Acknowledged offsets of one sender rise.
-- rule: A process whose later acknowledged message stands before an earlier one of its own. A retry
--   is left out: it is answered with the old offset.
-- source: Jepsen's Kafka workload, nonmonotonic-send and int-nonmonotonic-send
with retries as (
  select a.op, a.value
  from attempts a
  join values_told v on a.value = v.value
  where v.attempts > 1 and a.op > v.sent_op
),
acked_sends as (
  select s.process, s.broker_group, s.topic, s.queue, s.op, s.place_in_op, s.value, s.offset
  from attempts s left anti join retries r on s.op = r.op and s.value = r.value
  where s.f = 'send' and s.type = 'ok' and s.offset is not null
),
steps as (
  select
    *,
    lag(op) over (partition by process, broker_group, topic, queue order by op, place_in_op) as op_before,
    lag(value) over (partition by process, broker_group, topic, queue order by op, place_in_op) as value_before,
    lag(offset) over (partition by process, broker_group, topic, queue order by op, place_in_op) as offset_before
  from acked_sends
)
select
  process, op, place_in_op, broker_group, topic, queue, value, offset,
  struct(op_before as op, value_before as value, offset_before as offset) as sent_before
from steps
where offset <= offset_before
