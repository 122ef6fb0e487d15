-- T14: checks counted anew
-- promise: G4
-- needs: ops
-- wants: faults
-- applies: select (select coalesce(bool_or(own_system), false) from run_settings)
--   and (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'check')
--   and (select count(*) = 0 from fault_counts where name = 'duplicate-frames')
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'check'
-- nothing: no transaction was asked about
-- holds: Whoever leads, and whatever it began from, goes on counting how often a half was asked about.
-- rule: Two checks of one half that tell the same count (status). Each is counted through the log
--   before it is sent, so that no other leader and no restart tells it again. Where a check
--   does not tell which half it is about, only a transaction with one half counts.
-- source: RocketMQ TRANSACTION_CHECK_TIMES, AbstractTransactionalMessageCheckListener
with told as (
  select o.tx, o.broker_group, o.offset, o.status, o.op, o.node, o.t_invoke
  from ops o
  left anti join several_halves h on o.tx = h.tx and o.offset is null
  where o.f = 'check' and o.status is not null and o.tx is not null
)
select
  tx, broker_group, offset, status as told, count(*) as checks, min(op) as first_op,
  max(op) as last_op, min_by(coalesce(node, '-'), op) as first_node,
  max_by(coalesce(node, '-'), op) as last_node,
  min(t_invoke) as t_first, max(t_invoke) as t_last
from told
group by tx, broker_group, offset, status
having count(*) > 1
