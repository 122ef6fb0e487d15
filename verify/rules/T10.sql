-- T10: half and op records disagree
-- promise: G4
-- needs: ops, log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: The bookkeeping of halves and decisions agrees.
-- rule: Two op records of one half (unless nothing refuses a half that is sent again, no dedupe, and it
--   was); an op record of no half; or the half queue's progress is past a half that neither an op
--   record nor a discard had settled. A half may be appended anew at each check: progress is past it
--   when it is beyond the last of its appends at that index in that broker group.
-- source: RocketMQ issue 9500
with lone as (
  select r.broker_group, r.index, r.slot, r.decision, min(r.node) as node
  from records r join first_index f on r.broker_group = f.broker_group
  where r.kind = 'op' and r.tx is null and r.value is null and f.first_index = 1
  group by r.broker_group, r.index, r.slot, r.decision
),
progress as (
  select broker_group, queue, index, queue_offset as next_half, min(node) as node
  from log
  where committed and kind = 'offset' and topic = 'RMQ_SYS_TRANS_HALF_TOPIC'
  group by broker_group, queue, index, queue_offset
),
-- Indexes of two broker groups have no order between them: what one has of a transaction says nothing
-- of the other's half.
settled as (
  select tx, broker_group, min(index) as settled_index
  from tx_records
  where role in ('op', 'discard')
  group by tx, broker_group
),
-- Each append of a half is what progress must not pass until the next one of it, or until something
-- has settled it. What stands in the same entry as the progress comes first.
appends as (
  select
    h.tx, h.broker_group, h.queue, h.index, h.slot, h.offset as half_offset,
    least(
      coalesce(s.settled_index, cast(9223372036854775807 as bigint)),
      coalesce(
        lead(h.index) over (partition by h.tx, h.broker_group order by h.index, h.slot),
        cast(9223372036854775807 as bigint)
      )
    ) as until_index,
    o.first_op
  from tx_records h
  join outcomes o on h.tx = o.tx
  left join settled s on h.tx = s.tx and h.broker_group = s.broker_group
  where h.role = 'half' and h.counts
),
told as (
  select
    tx, broker_group, queue, until_index as at, 0 as turn, index, slot, half_offset, first_op,
    cast(null as bigint) as next_half,
    cast(null as struct<next_half:bigint, index:bigint, node:string>) as progress
  from appends
  union all
  select
    null, broker_group, queue, index, 1, null, null, null, null, next_half,
    struct(next_half as next_half, index as index, node as node)
  from progress
),
passed as (
  select
    tx, broker_group, queue, index, slot, half_offset, first_op,
    max(next_half) over told_before as next_half,
    max_by(
      progress, case when turn = 1 then struct(next_half as next_half, -at as at) end
    ) over told_before as progress
  from told
  window told_before as (
    partition by broker_group, queue order by at, turn, index, slot, next_half
    rows between unbounded preceding and 1 preceding
  )
)
select
  o.tx, 'two op records' as problem, cast(null as string) as broker_group,
  cast(null as bigint) as index, cast(null as int) as slot, o.half_offset, o.first_op, o.last_op,
  cast(null as struct<next_half:bigint, index:bigint, node:string>) as progress
from outcomes o left anti join tried_twice w on o.value = w.value
where o.op_count > 1 and o.kept
union all
select
  null, 'an op record of no half', broker_group, index, slot, null,
  struct(broker_group as broker_group, index as index, slot as slot, decision as decision, node as node),
  null, null
from lone
union all
select
  tx, 'progress past a half that nothing had settled', broker_group, index, slot, half_offset, first_op,
  null, progress
from passed
where tx is not null and half_offset < next_half
