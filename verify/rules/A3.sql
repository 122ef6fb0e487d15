-- A3: aborted read
-- promise: G7
-- needs: ops
-- examined: select coalesce(sum(messages), 0) from op_counts
--   where f in ('poll', 'deliver') and type = 'ok'
-- nothing: no operation read anything
-- holds: No reader got a message whose send was reported as failed.
-- rule: An ok read of a value all of whose attempts failed.
-- source: Jepsen's Kafka workload, G1a
select value, sent_op as failed_op, read_op, read_at
from values_told
where attempts > 0 and open_attempts = 0 and was_read
