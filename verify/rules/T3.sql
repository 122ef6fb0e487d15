-- T3: committed half lost
-- promise: G4
-- needs: ops, log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: Every committed transaction has its message.
-- rule: A commit was acknowledged to the producer, and no replica's committed log has the message.
-- source: RocketMQ issue 544
select
  tx, value, op_commit_acked, t_commit, t_commit_acked, t_rollback, op_decisions, first_op, discarded,
  delivered
from outcomes
where t_commit_acked is not null and finals = 0 and kept
