-- D6: recall refused, and it never came
-- promise: G7
-- needs: ops
-- wants: log
-- applies: select (select coalesce(bool_or(has_delays), false) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'recall' and type = 'fail') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'recall' and type = 'fail'
-- nothing: no recall was refused
-- holds: Every delayed message whose recall was refused came.
-- rule: As D3, of a delayed message all of whose recalls ended fail.
-- source: own rule; promise G7: what was told as failed did not happen
select broker_group, topic, queue, value, due, acked_op, recall_op, recalls, client_group, groups, lost, reason
from delays_missed
where recalls > 0
