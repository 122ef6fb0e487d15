-- T19: asked about too soon again
-- promise: G4
-- needs: ops
-- wants: faults
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(bool_or(check_interval_ns > 0), false) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'check') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'check'
-- nothing: no transaction was asked about
-- holds: Between two questions about one transaction lay the configured interval.
-- rule: One node asked three times about a half within nine tenths of one check interval (brokers'
--   clocks run at rates of their own), in a stretch without fault windows, two seconds or more behind
--   its beginning. Two of them prove nothing: the one may have been late on its way, and a leader
--   that has come back does not know when it asked last. Where a question does not tell which half it
--   is about, only a transaction with one half counts.
-- source: RocketMQ transactionCheckInterval, TransactionalMessageServiceImpl.check
with checks as (
  select o.tx, o.broker_group, o.offset, o.node, o.op, o.t_invoke
  from ops o
  left anti join several_halves h on o.tx = h.tx and o.offset is null
  where o.f = 'check' and o.tx is not null and o.node is not null
),
thirds as (
  select
    tx, broker_group, offset, node, op, t_invoke,
    lag(t_invoke, 2) over (
      partition by tx, broker_group, offset, node order by t_invoke, op
    ) as t_first
  from checks
)
select
  t.tx, t.broker_group, t.offset, t.node, t.op, t.t_first, t.t_invoke as t_third,
  t.t_invoke - t.t_first as within_ns, s.check_interval_ns
from thirds t
cross join run_settings s
join calm_stretches c on t.t_first > c.t_from + 2000000000 and t.t_invoke < c.t_to
where t.t_first is not null and t.t_invoke - t.t_first < s.check_interval_ns div 10 * 9
