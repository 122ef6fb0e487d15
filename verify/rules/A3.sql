-- A3: aborted read
-- promise: G7
-- needs: ops
-- examined: select coalesce(sum(messages), 0) from op_counts
--   where f in ('poll', 'deliver', 'pop') and type = 'ok'
-- nothing: no operation read anything
-- holds: No reader got a message whose send was reported as failed.
-- rule: An ok read of a value all of whose attempts failed.
-- source: Jepsen's Kafka workload, G1a
with found as (
  select value, sent_op, read_op
  from values_told
  where attempts > 0 and open_attempts = 0 and was_read
),
shown as (
  select
    r.value,
    min_by(
      struct(r.f, r.broker_group, r.topic, r.queue, r.offset),
      struct(case when r.type = 'ok' then 0 else 1 end as later, r.op, r.place_in_op)
    ) as place
  from reads r left semi join found f on r.value <=> f.value
  group by r.value
)
select f.value, f.sent_op as failed_op, f.read_op, s.place as read_at
from found f left join shown s on f.value <=> s.value
