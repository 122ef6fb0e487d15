-- S1: ConsumeQueue differs from the log
-- promise: G3
-- needs: log, cq
-- examined: select (select coalesce(sum(records), 0) from record_counts
--   where committed and kind in ('message', 'half', 'op', 'final')) + (select units from unit_counts)
-- nothing: no replica has a committed record
-- rule: On every replica and in every queue, from min_offset on (from the first record on, where the
--   log begins late): a committed message without its unit, a unit without its message or not of its
--   record, a hole or a repeat in the offsets. Units below are left over and prove nothing; a record
--   whose cq_ok is null owes no unit and may have one.
-- source: RocketMQ issues 8032, 7355, 8762
with told as (
  select
    broker_group, node, topic, queue, queue_offset as offset, true as is_record,
    coalesce(committed, false) as committed, cq_ok, position, size, tag_hash
  from log
  where kind in ('message', 'half', 'op', 'final')
  union all
  select broker_group, node, topic, queue, queue_offset, false, false, null, position, size, tag_hash
  from cq
),
at_places as (
  select
    broker_group, node, topic, queue, offset,
    count_if(is_record) as records,
    count_if(committed) as committed,
    count_if(not is_record) as units,
    count_if(committed and cq_ok is not null) as owed,
    count_if(committed and not cq_ok) as not_ok,
    min(case when committed then position end) as position,
    min(case when committed then size end) as size,
    min(case when committed then tag_hash end) as tag_hash,
    min(case when not is_record then position end) as unit_position,
    min(case when not is_record then size end) as unit_size,
    min(case when not is_record then tag_hash end) as unit_tag_hash
  from told
  group by broker_group, node, topic, queue, offset
),
firsts as (
  select
    broker_group, node, topic, queue, min(case when records > 0 then offset end) as first_record
  from at_places
  group by broker_group, node, topic, queue
),
bounds as (
  select
    f.broker_group, f.node, f.topic, f.queue,
    case
      when r.first_index > 1 then greatest(
        coalesce(q.min_offset, cast(0 as bigint)),
        coalesce(f.first_record, cast(9223372036854775807 as bigint))
      )
      else coalesce(q.min_offset, cast(0 as bigint))
    end as bound
  from firsts f
  join replicas r on f.broker_group = r.broker_group and f.node = r.node
  left join run_queues q
    on f.broker_group = q.broker_group and f.topic = q.topic and f.queue = q.queue
),
judged as (
  select
    p.*,
    coalesce(
      max(case when p.committed > 0 then p.offset end) over (
        partition by p.broker_group, p.node, p.topic, p.queue order by p.offset
        rows between unbounded preceding and 1 preceding
      ),
      b.bound - 1
    ) as offset_before
  from at_places p
  join bounds b
    on p.broker_group = b.broker_group and p.node = b.node and p.topic = b.topic and p.queue = b.queue
  where p.offset >= b.bound
),
found as (
  select
    broker_group, node, topic, queue, offset,
    filter(
      array(
        case when owed > 0 and units = 0 then 'a message without its unit' end,
        case when units > 0 and records = 0 then 'a unit without its message' end,
        case
          when position <> unit_position or size <> unit_size or tag_hash <> unit_tag_hash
            then 'the unit is not the record\'s'
        end,
        case when not_ok > 0 then 'cq_ok is false' end,
        case when committed > 1 then 'two messages' end,
        case when units > 1 then 'two units' end,
        case
          when committed > 0 and offset <> offset_before + 1
            then 'no message at the offsets before it'
        end
      ),
      problem -> problem is not null
    ) as problems
  from judged
  where (owed > 0 and units = 0) or (units > 0 and records = 0)
    or position <> unit_position or size <> unit_size or tag_hash <> unit_tag_hash
    or not_ok > 0 or committed > 1 or units > 1
    or (committed > 0 and offset <> offset_before + 1)
),
records_there as (
  select
    f.broker_group, f.node, f.topic, f.queue, f.offset,
    array_sort(collect_list(
      struct(l.index as index, l.slot as slot, l.position as position, l.size as size, l.tag_hash as tag_hash, l.value as value)
    )) as records
  from found f
  join log l
    on f.broker_group = l.broker_group and f.node = l.node and f.topic = l.topic
    and f.queue = l.queue and f.offset = l.queue_offset
  where l.kind in ('message', 'half', 'op', 'final') and l.committed
  group by f.broker_group, f.node, f.topic, f.queue, f.offset
),
units_there as (
  select
    f.broker_group, f.node, f.topic, f.queue, f.offset,
    array_sort(collect_list(struct(c.position as position, c.size as size, c.tag_hash as tag_hash))) as units
  from found f
  join cq c
    on f.broker_group = c.broker_group and f.node = c.node and f.topic = c.topic
    and f.queue = c.queue and f.offset = c.queue_offset
  group by f.broker_group, f.node, f.topic, f.queue, f.offset
),
voters_without as (
  select v.broker_group, v.node from run_voters v left anti join replicas r
    on v.broker_group = r.broker_group and v.node = r.node
)
select
  f.broker_group, f.node, f.topic, f.queue, f.offset, f.problems,
  case when size(r.records) > 0 then r.records[0] end as record,
  case when size(u.units) > 0 then u.units[0] end as unit,
  cast(null as string) as reason
from found f
left join records_there r
  on f.broker_group = r.broker_group and f.node = r.node and f.topic = r.topic
  and f.queue = r.queue and f.offset = r.offset
left join units_there u
  on f.broker_group = u.broker_group and f.node = u.node and f.topic = u.topic
  and f.queue = u.queue and f.offset = u.offset
union all
select
  broker_group, node, null, null, null, null, null, null,
  concat('there is no log of ', broker_group, '/', node)
from voters_without
