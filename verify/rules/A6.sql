-- A6: reader jumps
-- promise: G3
-- needs: ops
-- wants: log
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'poll'
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'poll' and type = 'ok'
-- nothing: no operation read anything
-- holds: No reader jumped over or back within its queue.
-- rule: A poll that begins behind, or beyond, where the process's ok poll of the queue for that
--   group before it ended. Beyond: over a place where a value is known to stand, from where absence
--   counts on. An assign that names the queue (of the process, or where it has none before, of its
--   client) starts the position anew, as may a reset of the queue for the group.
-- source: Jepsen's Kafka workload, poll-skip and nonmonotonic-poll
select process, op, to_offset, broker_group, topic, queue, op_before, from_offset, skipped
from poll_steps
where op_before <> op
