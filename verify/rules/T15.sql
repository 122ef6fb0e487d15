-- T15: acknowledged decision refused when it was repeated
-- promise: G4
-- needs: ops
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'decide'
-- nothing: no decision was sent
-- holds: A decision that was acknowledged is acknowledged again, whoever leads by then.
-- rule: A decide that was refused with status 604 (it was decided otherwise, or nobody knows how),
--   though the same decision on the transaction had been acknowledged before it was invoked.
-- source: RocketMQ EndTransactionProcessor; promise of this project's broker: decisions are idempotent
with acknowledged as (
  select tx, decision, min(t_complete) as t_acked, min(op) as acked_op
  from ops
  where f = 'decide' and type = 'ok' and tx is not null and decision in ('commit', 'rollback')
  group by tx, decision
)
select d.tx, d.op, a.decision, d.t_invoke, a.t_acked, a.acked_op, d.node, d.error
from ops d
join acknowledged a on d.tx = a.tx and d.decision = a.decision
where d.f = 'decide' and d.type <> 'ok' and d.status = '604' and d.t_invoke > a.t_acked
