-- T7: asked about after its decision
-- promise: G4
-- needs: ops
-- wants: log
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'check') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: Nobody was asked about a transaction that was decided.
-- rule: The broker asks about a transaction later than one check interval after it acknowledged the
--   decision.
-- source: RocketMQ issues 1517, 4436, 8158
with decided as (
  select tx, value, least(t_commit_acked, t_rollback_acked) as t_acked, t_last_check, checks
  from transactions
)
select d.tx, d.value, d.t_acked, d.t_last_check, d.checks
from decided d cross join run_settings s
where d.t_last_check - d.t_acked > s.check_interval_ns
