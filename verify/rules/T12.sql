-- T12: decision for another transaction
-- promise: G4
-- needs: ops, log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: A decision resolved the transaction that it was for, and so would the answer to a check.
-- rule: A final message or an op record whose value or uniq_key is not its transaction's half's; or a
--   resolution that nobody told for one transaction, while an acknowledged decision of the same kind
--   for another resolved nothing. Or a check with the message of one transaction names a half, by its
--   place in the half topic, that in the logs is another's and none of its own.
-- source: the shape of Kafka's KIP-890
with halves as (
  select tx, min(value) as value, min(uniq_key) as uniq_key
  from tx_records
  where role = 'half'
  group by tx
),
sent as (
  select
    o.tx, coalesce(o.value, h.value) as sent_value, coalesce(o.uniq_key, h.uniq_key) as sent_uniq_key
  from outcomes o left join halves h on o.tx = h.tx
  where o.kept
),
torn as (
  select r.*, s.sent_value, s.sent_uniq_key
  from tx_records r join sent s on r.tx = s.tx
  where r.role in ('final', 'op') and (r.value <> s.sent_value or r.uniq_key <> s.sent_uniq_key)
),
resolved as (
  select
    tx, half_broker_group as broker_group, half_op, kind,
    case when kind = 'commit' then t_commit_acked else t_rollback_acked end as t_acked,
    case when kind = 'commit' then t_commit else t_rollback end as t_told,
    finals = 0 and op_count = 0 as unresolved,
    array_contains(op_decisions, kind) or (kind = 'commit' and finals > 0) as so_resolved
  from outcomes lateral view explode(array('commit', 'rollback')) e as kind
  where kept
),
asked as (
  select o.tx, o.broker_group, o.offset, min(o.op) as op, min(o.node) as node
  from ops o
  where o.f = 'check' and o.offset is not null and o.tx is not null
  group by o.tx, o.broker_group, o.offset
),
misnamed as (
  select a.tx, a.broker_group, a.offset, a.op, a.node, min(h.tx) as named_tx
  from asked a
  join tx_records h
    on h.role = 'half' and a.broker_group = h.broker_group and a.offset = h.offset
  left anti join tx_records own
    on own.role = 'half' and a.broker_group = own.broker_group and a.offset = own.offset
    and a.tx = own.tx
  where h.tx is not null
  group by a.tx, a.broker_group, a.offset, a.op, a.node
),
untold as (
  select broker_group, kind, min(tx) as tx
  from resolved
  where so_resolved and t_told is null and half_op is not null
  group by broker_group, kind
)
select
  tx, case when role = 'op' then 'the op record is not the half\'s' else 'the final message is not the half\'s' end as problem,
  broker_group, index, slot, decision, node, value, uniq_key, sent_value, sent_uniq_key,
  cast(null as string) as resolved_instead
from torn
union all
select
  r.tx, 'the decision resolved another transaction', r.broker_group, null, null, r.kind, null, null, null,
  null, null, u.tx
from resolved r join untold u on r.broker_group = u.broker_group and r.kind = u.kind
where r.unresolved and r.t_acked is not null
union all
select
  tx, 'a check of it names another\'s half', broker_group, null, null, null, node, null, null, null,
  null, named_tx
from misnamed
