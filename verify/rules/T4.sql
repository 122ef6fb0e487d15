-- T4: transaction committed twice
-- promise: G4
-- needs: ops, log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: No transaction was committed twice.
-- rule: One transaction with two final messages, but where nothing refuses a half that is sent again
--   (no dedupe) and it was: each of its halves may be decided.
-- source: RocketMQ issue 8158
select
  o.tx, o.finals, o.t_commit, o.t_rollback, o.t_commit_acked, o.first_final, o.last_final, o.delivered
from outcomes o left anti join tried_twice w on o.value = w.value
where o.finals > 1
