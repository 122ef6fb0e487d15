-- S2: replicas differ
-- promise: G3
-- needs: log
-- examined: select coalesce(sum(records), 0) from record_counts where committed
-- nothing: no replica has a committed entry
-- holds: Committed entries are the same on all replicas.
-- rule: A committed entry that is not the same, at the same index and slot, on every replica that has
--   committed as far; that one of them lacks or holds twice; or that can't be read. From the highest
--   of the replicas' first indexes on; digests are compared where both have one.
-- source: the run format; DLedger's divergent logs
with places as (
  select broker_group, node, row_number() over (partition by broker_group order by node) - 1 as place,
    last_committed
  from replicas
  where last_committed > 0
),
ends as (
  select
    p.broker_group, f.first_index, min(p.last_committed) as all_committed,
    count(*) as replicas,
    array_sort(collect_list(p.last_committed)) as ends
  from places p join first_index f on p.broker_group = f.broker_group
  group by p.broker_group, f.first_index
),
-- Rows that are the same fall together; the bits say on which replicas they stand.
alike as (
  select
    l.broker_group, l.index, l.slot, l.term, l.chain, l.kind, l.topic, l.queue, l.queue_offset,
    l.client_group, l.value, l.uniq_key, l.keys, l.tx, l.decision,
    min(l.digest) as digest_min, max(l.digest) as digest_max,
    bit_or(shiftleft(cast(1 as bigint), cast(p.place as int))) as standing, count(*) as copies
  from log l join places p on l.broker_group = p.broker_group and l.node = p.node
  where l.committed
  group by
    l.broker_group, l.index, l.slot, l.term, l.chain, l.kind, l.topic, l.queue, l.queue_offset,
    l.client_group, l.value, l.uniq_key, l.keys, l.tx, l.decision
),
at_slots as (
  select
    broker_group, index, slot, count(*) as versions, min(digest_min) as digest_min,
    max(digest_max) as digest_max, bit_or(standing) as standing, sum(copies) as copies,
    bool_or(kind = 'damaged') as is_damaged
  from alike
  group by broker_group, index, slot
),
found as (
  select a.broker_group, a.index, a.slot
  from at_slots a join ends e on a.broker_group = e.broker_group
  where a.is_damaged
    or (
      a.index >= coalesce(e.first_index, cast(0 as bigint))
      and (
        a.versions > 1 or a.digest_min <> a.digest_max
        or a.copies <> bit_count(a.standing)
        or a.copies <> case
          when a.index <= e.all_committed then e.replicas
          else size(filter(e.ends, last_committed -> last_committed >= a.index))
        end
      )
    )
),
told as (
  select
    f.broker_group, f.index, f.slot, l.node,
    struct(
      row_number() over (
        partition by f.broker_group, f.index, f.slot
        order by
          l.node, coalesce(l.kind, ''), coalesce(l.term, cast(-1 as bigint)),
          coalesce(l.chain, cast(-1 as bigint)), coalesce(l.queue_offset, cast(-1 as bigint)),
          coalesce(l.value, ''), coalesce(l.uniq_key, ''), coalesce(l.position, cast(-1 as bigint))
      ) as number,
      l.node as node, l.term as term, l.chain as chain, l.kind as kind, l.topic as topic,
      l.queue as queue, l.queue_offset as queue_offset, l.client_group as client_group,
      l.value as value, l.uniq_key as uniq_key, l.keys as keys, l.digest as digest, l.tx as tx,
      l.decision as decision, l.damage as damage
    ) as row
  from found f
  join log l on f.broker_group = l.broker_group and f.index = l.index and f.slot <=> l.slot
  where l.committed
),
shown as (
  select broker_group, index, slot, array_sort(collect_list(row)) as rows
  from told
  group by broker_group, index, slot
),
missing as (
  select f.broker_group, f.index, f.slot, array_sort(collect_list(p.node)) as missing_on
  from found f
  join places p on f.broker_group = p.broker_group
  left anti join told t
    on f.broker_group = t.broker_group and f.index = t.index and f.slot <=> t.slot
    and p.node = t.node
  where p.last_committed >= f.index
  group by f.broker_group, f.index, f.slot
)
select
  f.broker_group, f.index, f.slot, cast(null as string) as node,
  coalesce(m.missing_on, array()) as missing_on, s.rows, cast(null as string) as reason
from found f
left join shown s on f.broker_group = s.broker_group and f.index = s.index and f.slot <=> s.slot
left join missing m on f.broker_group = m.broker_group and f.index = m.index and f.slot <=> m.slot
union all
select
  broker_group, null, null, node, null, null,
  concat('there is no log of ', broker_group, '/', node)
from run_voters
left anti join replicas using (broker_group, node)
