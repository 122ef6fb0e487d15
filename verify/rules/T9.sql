-- T9: committed half discarded
-- promise: G4
-- needs: ops, log
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'check') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: No decided transaction was discarded.
-- rule: A commit was acknowledged to the producer, and the half was discarded for want of a decision.
-- source: RocketMQ issues 8311, 8158
select tx, value, op_commit_acked, t_commit, t_commit_acked, t_rollback, discarded, finals
from outcomes
where t_commit_acked is not null and kept and discarded is not null
