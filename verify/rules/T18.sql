-- T18: asked about before its time
-- promise: G4
-- needs: ops
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(sum(with_due), 0) from op_counts where f = 'half') > 0
-- examined: select coalesce(sum(with_due), 0) from op_counts where f = 'half'
-- nothing: no producer wanted to be left alone
-- holds: No producer was asked about a transaction in the time for which it wanted to be left alone.
-- rule: A check of a half with due that was invoked before that, by more than a tenth of the time from
--   the half's invoke to its due (brokers' clocks run at rates of their own) and more than the clocks
--   may differ.
-- source: RocketMQ CHECK_IMMUNITY_TIME_IN_SECONDS
with immune as (
  select
    h.tx, min(h.op) as half_op, min(h.t_invoke) as half_invoked, min(h.due) as due,
    min(h.t_invoke + (h.due - h.t_invoke) div 10 * 9) - coalesce(max(s.clock_error_ns), cast(0 as bigint)) as t_sure
  from ops h cross join run_settings s
  where h.f = 'half' and h.type <> 'fail' and h.tx is not null
  group by h.tx
  having count(*) = count(h.due)
)
select
  i.tx, i.half_op, i.half_invoked, i.due, min(c.op) as check_op, min(c.t_invoke) as t_asked,
  count(*) as checks_early
from immune i
join ops c on i.tx = c.tx
where c.f = 'check' and c.t_invoke < i.t_sure
group by i.tx, i.half_op, i.half_invoked, i.due
