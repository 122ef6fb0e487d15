-- T5: conflicting resolutions
-- promise: G4
-- needs: ops, log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: No transaction was both committed and rolled back.
-- rule: Op records of both decisions for one transaction, or a final message of what an op record
--   rolled back.
-- source: RocketMQ issue 8158
select tx, op_decisions, first_op, last_op, finals, first_final, t_commit, t_rollback, t_commit_acked
from outcomes
where array_contains(op_decisions, 'rollback') and (array_contains(op_decisions, 'commit') or finals > 0)
