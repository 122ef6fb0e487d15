-- K1517: a decision that came at once was forgotten
-- promise: none
-- needs: ops
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'check') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: Nobody was asked about a transaction that had been decided long before it was due to be.
-- rule: A transaction whose decision was acknowledged within half of the transaction timeout behind
--   its half, and that a broker asked about more than a check interval later. T7 judges decisions
--   of any time: those that come while a round of checks is at work RocketMQ's releases overlook
--   to this day.
-- source: RocketMQ issue 1517
with decided as (
  select
    tx, value, half_completed, least(t_commit_acked, t_rollback_acked) as t_acked, t_last_check,
    checks
  from transactions
)
select d.tx, d.value, d.half_completed, d.t_acked, d.t_last_check, d.checks
from decided d
cross join run_settings s
where d.t_acked - d.half_completed <= s.timeout_ns div 2
  and d.t_last_check - d.t_acked > s.check_interval_ns
