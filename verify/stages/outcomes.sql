-- What became of each transaction that anything tells of: the columns of `transactions`, and from
-- the committed logs of all replicas together `finals` (how many final messages, with the first and
-- last of them and `t_final`, when one could first be seen), `op_decisions` (which decisions op
-- records have) and `op_count`, `settlements` (records that settle it: op, final, discard) and
-- `t_settled` (when the first of them could be seen), `discarded`, `half_offset` (the last place of its half); `delivered` the delivery that ended first, at
-- `t_delivered` (null where only one of unknown outcome shows it). `kept` is false where retention
-- may have taken the half.
with stored as (
  select
    tx,
    count_if(role = 'final') as finals,
    min(case when role = 'final' then t_append end) as t_final,
    min_by(
      struct(t_append, broker_group, index, slot, topic, queue, offset, term, node, value, uniq_key),
      struct(broker_group, index, slot)
    ) filter (where role = 'final') as first_final,
    max_by(
      struct(t_append, broker_group, index, slot, topic, queue, offset, term, node, value, uniq_key),
      struct(broker_group, index, slot)
    ) filter (where role = 'final') as last_final,
    coalesce(array_sort(collect_set(case when role = 'op' then decision end)), array()) as op_decisions,
    count_if(role = 'op') as op_count,
    min_by(struct(broker_group, index, slot, decision, node), struct(broker_group, index, slot, coalesce(decision, '')))
      filter (where role = 'op') as first_op,
    max_by(struct(broker_group, index, slot, decision, node), struct(broker_group, index, slot, coalesce(decision, '')))
      filter (where role = 'op') as last_op,
    min_by(struct(t_append, broker_group, index, slot, term, node, value), struct(broker_group, index, slot))
      filter (where role = 'discard') as discarded,
    min(case when role = 'discard' then t_append end) as t_discarded,
    count_if(role in ('op', 'final', 'discard')) as settlements,
    min(case when role in ('op', 'final', 'discard') then t_append end) as t_settled,
    max(case when role = 'half' and counts then offset end) as half_offset
  from tx_records
  group by tx
),
of_values as (
  select value, min(tx) as tx from transactions where value is not null group by value
),
-- One of unknown outcome is open until the run's end: it shows the message, and never too early.
shown as (
  select
    v.tx,
    min(case when r.type <> 'info' then r.t_complete end) as t_delivered,
    min_by(
      struct(
        case when r.type <> 'info' then r.t_complete end as t_complete, r.op as op, r.f as f, r.type as type,
        r.broker_group as broker_group, r.topic as topic, r.queue as queue, r.offset as offset, r.value as value
      ),
      struct(
        case when r.type <> 'info' then coalesce(r.t_complete, cast(9223372036854775807 as bigint)) else cast(9223372036854775807 as bigint) end,
        r.op, r.place_in_op
      )
    ) as delivered
  from reads r join of_values v on r.value = v.value
  where r.topic is null or r.on_user_topic or startswith(r.topic, '%RETRY%')
  group by v.tx
),
known as (
  select tx from transactions
  union
  select tx from stored
)
select
  k.tx, t.half_op, t.half_type, t.half_invoked, t.half_completed, t.half_client_group,
  t.half_broker_group, t.value, t.uniq_key, t.digest, t.t_commit, t.t_rollback, t.t_commit_acked,
  t.t_rollback_acked, t.op_decided, t.op_commit_acked, t.local, coalesce(t.checks, cast(0 as bigint)) as checks,
  t.t_last_check,
  coalesce(s.finals, cast(0 as bigint)) as finals, s.t_final, s.first_final, s.last_final,
  coalesce(s.op_decisions, array()) as op_decisions, coalesce(s.op_count, cast(0 as bigint)) as op_count,
  s.first_op, s.last_op, s.discarded, s.t_discarded,
  coalesce(s.settlements, cast(0 as bigint)) as settlements, s.t_settled, s.half_offset,
  d.t_delivered, d.delivered,
  coalesce(f.first_index, cast(1 as bigint)) = 1 or s.half_offset is not null as kept
from known k
left join transactions t on k.tx = t.tx
left join stored s on k.tx = s.tx
left join shown d on k.tx = d.tx
left join first_index f on coalesce(t.half_broker_group, t.broker_group) = f.broker_group
