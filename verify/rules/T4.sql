-- T4: transaction committed twice
-- promise: G4
-- needs: ops, log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: No transaction was committed twice.
-- rule: One transaction with two final messages.
-- source: RocketMQ issue 8158
select tx, finals, t_commit, t_rollback, t_commit_acked, first_final, last_final, delivered
from outcomes
where finals > 1
