-- A20: answered before it was committed
-- promise: G1
-- needs: ops, raft, log
-- reaches: yes
-- applies: select (select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--   or (select count(*) > 0 from event_counts where event = 'commit')
-- examined: select coalesce(sum(ops), 0) from op_counts
--   where f in ('send', 'half', 'decide', 'delay', 'request') and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: Nothing was acknowledged before it was committed.
-- rule: An ok send, delay, request, half or decide whose record stands in an entry that the first node of the group
--   to commit it committed later than the answer came, by more than the clocks may differ. The
--   record is the one at the offset that the answer told, else the first of its value on user
--   topics (of a delay on any), of its transaction's halves, or of its op records of that decision; where retention took
--   some of the group's, only the one at the offset told is judged. Where the answer tells no broker
--   group the first of any group counts.
-- source: Raft, 8: a leader answers once the entry is committed
with answers as (
  select
    op, f, t_complete, broker_group, topic, queue, offset, value, cast(null as string) as tx,
    cast(null as string) as decision
  from attempts
  where f in ('send', 'delay', 'request') and type = 'ok' and value is not null
  union all
  select
    op, f, t_complete, broker_group, cast(null as string), cast(null as int), op_offset,
    cast(null as string), tx, null
  from attempts
  where f = 'half' and type = 'ok' and tx is not null
  union all
  select op, f, t_complete, broker_group, null, null, null, null, tx, decision
  from ops
  where f = 'decide' and type = 'ok' and decision in ('commit', 'rollback') and tx is not null
),
rows_of as (
  select
    a.op, a.f, a.t_complete, a.value, cast(null as string) as tx, r.broker_group,
    min(case when a.offset = r.offset and a.queue = r.queue and a.topic = r.topic then r.index end) as told_index,
    min(r.index) as first_index
  from answers a join records r on a.value = r.named
  where a.f in ('send', 'delay', 'request')
    and (r.is_visible or (a.f = 'delay' and r.kind in ('message', 'final')))
    and r.broker_group = coalesce(a.broker_group, r.broker_group)
  group by a.op, a.f, a.t_complete, a.value, r.broker_group
  union all
  select
    a.op, a.f, a.t_complete, null, a.tx, r.broker_group,
    min(case when a.offset = r.offset then r.index end), min(r.index)
  from answers a join records r on a.tx = r.tx
  where r.broker_group = coalesce(a.broker_group, r.broker_group)
    and ((a.f = 'half' and r.kind = 'half') or (a.f = 'decide' and r.kind = 'op' and a.decision = r.decision))
  group by a.op, a.f, a.t_complete, a.tx, r.broker_group
),
judged as (
  select
    r.op, r.f, r.value, r.tx, r.broker_group, r.t_complete, r.told_index is not null as is_told,
    coalesce(r.told_index, case when coalesce(f.first_index, cast(1 as bigint)) <= 1 then r.first_index end) as index
  from rows_of r left join first_index f on r.broker_group = f.broker_group
),
late as (
  select
    j.op, j.f, j.value, j.tx, j.broker_group, j.index, j.t_complete, c.t_committed, j.is_told
  from judged j
  join first_commits c on j.broker_group = c.broker_group and j.index = c.index
  cross join run_settings s
  where coalesce(c.t_committed > j.t_complete + coalesce(s.clock_error_ns, cast(0 as bigint)), true)
),
-- Where the answer tells no broker group the record may be that of another one, which came in time
-- or which retention may have taken.
elsewhere as (
  select distinct l.op, l.value, l.tx
  from late l
  join judged j
    on l.op = j.op and l.value <=> j.value and l.tx <=> j.tx and l.broker_group <> j.broker_group
  left anti join late o
    on j.op = o.op and j.value <=> o.value and j.tx <=> o.tx and j.broker_group = o.broker_group
  where j.is_told or not l.is_told
),
firsts as (
  select
    l.op, l.f, l.value, l.tx, l.t_complete,
    min_by(
      struct(l.broker_group, l.index, l.t_committed),
      struct(
        not l.is_told as is_guessed,
        coalesce(l.t_committed, cast(9223372036854775807 as bigint)) as t_committed, l.broker_group
      )
    ) as record
  from late l
  left anti join elsewhere e on l.op = e.op and l.value <=> e.value and l.tx <=> e.tx
  group by l.op, l.f, l.value, l.tx, l.t_complete
)
select
  op, f, value, tx, record.broker_group, record.index, t_complete, record.t_committed
from firsts
