-- T2: rolled-back transaction visible
-- promise: G4
-- needs: ops
-- wants: log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: No rolled-back message was visible.
-- rule: A transaction that is stored on a user topic, or was delivered, though it was decided to roll
--   it back and nobody ever told to commit it.
-- source: RocketMQ issue 8158
select tx, t_rollback, t_rollback_acked, finals, first_final, last_final, delivered
from outcomes
where (finals > 0 or delivered is not null) and t_rollback is not null and t_commit is null
