-- D3: delayed message lost
-- promise: G1
-- needs: ops
-- wants: log
-- applies: select (select coalesce(bool_or(has_delays), false) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'delay') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'delay' and type = 'ok'
-- nothing: no delayed message was acknowledged
-- holds: Every acknowledged delayed message came, and was read by each group that had to read all.
-- rule: A delayed message that was acknowledged, that nobody tried to recall, and that was never read
--   ok by a group that is to read all of its topic, or stands nowhere at all. Where it fell due less
--   than lost_ms before the drain, or its topic was not drained, that proves nothing.
-- source: RocketMQ issues 6427 and 7914, for timers and pops
select broker_group, topic, queue, value, due, acked_op, client_group, groups, lost, reason
from delays_missed
where recalls = 0
