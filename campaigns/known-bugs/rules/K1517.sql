-- K1517: a decision that came at once was forgotten
-- promise: none
-- needs: ops, log
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'check') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: Nobody was asked about a transaction that had been decided long before it was due to be.
-- rule: A transaction whose decision was acknowledged within half of the transaction timeout behind
--   its half, and that a broker asked about more than a check interval later; not one whose half
--   stood in the log more than once before the decision, as of a send that was repeated. T7 judges
--   decisions of any time: those that come while a round of checks is at work RocketMQ's releases
--   overlook to this day.
-- source: RocketMQ issue 1517
with decided as (
  select
    tx, value, half_completed, least(t_commit_acked, t_rollback_acked) as t_acked, t_last_check,
    checks
  from transactions
),
forgotten as (
  select d.*
  from decided d
  cross join run_settings s
  where d.t_acked - d.half_completed <= s.timeout_ns div 2
    and d.t_last_check - d.t_acked > s.check_interval_ns
),
first_ops as (
  select tx, min(index) as index from records where kind = 'op' and tx is not null group by tx
),
halves as (
  select r.tx, count(distinct r.index) as halves
  from records r
  join first_ops o on r.tx = o.tx and r.index < o.index
  where r.kind = 'half'
  group by r.tx
)
select f.tx, f.value, f.half_completed, f.t_acked, f.t_last_check, f.checks
from forgotten f
left join halves h on f.tx = h.tx
where coalesce(h.halves, cast(1 as bigint)) = 1
