-- A7: jump within a poll
-- promise: G3
-- needs: ops
-- wants: log
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'poll'
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'poll' and type = 'ok'
-- nothing: no operation read anything
-- holds: No poll jumped over or back within itself.
-- rule: Messages of one ok poll that go back, or leave out between two of them a place where a value
--   is known to stand, from where absence counts on.
-- source: Jepsen's Kafka workload, int-poll-skip and int-nonmonotonic-poll
select process, op, place_in_op, to_offset, broker_group, topic, queue, from_offset, skipped
from poll_steps
where op_before = op
