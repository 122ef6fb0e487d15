-- S1: ConsumeQueue differs from the log
-- promise: G3
-- needs: log, cq
-- wants: ops
-- examined: select (select coalesce(sum(records), 0) from record_counts
--   where committed and kind in ('message', 'half', 'op', 'final')) + (select units from unit_counts)
-- nothing: no replica has a committed record
-- holds: Log and queue index agree, unit by unit, on every replica.
-- rule: On every replica and in every queue, from min_offset on (from the first record on, where the
--   log begins late): a committed message without its unit, a unit without its message or not of its
--   record, a hole or a repeat in the offsets. Units below are left over and prove nothing; a record
--   whose cq_ok is null owes no unit and may have one. With its topic a queue's units go: queues
--   that the run has no more, of a topic that may have been deleted, are left out.
-- source: RocketMQ issues 8032, 7355, 8762
with firsts as (
  select
    broker_group, node, topic, queue, min(case when records > 0 then offset end) as first_record
  from unit_places
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
  left join (
    select distinct broker_group, topic from topic_changes where f = 'delete_topic'
  ) d
    on f.broker_group = d.broker_group and f.topic = d.topic
  where q.topic is not null or d.topic is null
),
kept as (
  select p.*, b.bound
  from unit_places p
  join bounds b
    on p.broker_group = b.broker_group and p.node = b.node and p.topic = b.topic and p.queue = b.queue
  where p.offset >= b.bound
),
-- Only in a queue whose messages are fewer than its offsets is one missing before another.
holed as (
  select broker_group, node, topic, queue
  from kept
  where committed > 0
  group by broker_group, node, topic, queue
  having count(*) <> max(offset) - min(bound) + 1
),
holes as (
  select broker_group, node, topic, queue, offset
  from (
    select
      k.broker_group, k.node, k.topic, k.queue, k.offset, k.bound,
      lag(k.offset) over (
        partition by k.broker_group, k.node, k.topic, k.queue order by k.offset
      ) as offset_before
    from kept k
    join holed h
      on k.broker_group = h.broker_group and k.node = h.node and k.topic = h.topic and k.queue = h.queue
    where k.committed > 0
  ) o
  where offset <> coalesce(offset_before, bound - 1) + 1
),
found as (
  select
    k.broker_group, k.node, k.topic, k.queue, k.offset,
    filter(
      array(
        case when k.owed > 0 and k.units = 0 then 'a message without its unit' end,
        case when k.units > 0 and k.records = 0 then 'a unit without its message' end,
        case
          when k.position <> k.unit_position or k.size <> k.unit_size or k.tag_hash <> k.unit_tag_hash
            then 'the unit is not the record\'s'
        end,
        case when k.not_ok > 0 then 'cq_ok is false' end,
        case when k.committed > 1 then 'two messages' end,
        case when k.units > 1 then 'two units' end,
        case when h.offset is not null then 'no message at the offsets before it' end
      ),
      problem -> problem is not null
    ) as problems
  from kept k
  left join holes h
    on k.broker_group = h.broker_group and k.node = h.node and k.topic = h.topic
    and k.queue = h.queue and k.offset = h.offset
  where (k.owed > 0 and k.units = 0) or (k.units > 0 and k.records = 0)
    or k.position <> k.unit_position or k.size <> k.unit_size or k.tag_hash <> k.unit_tag_hash
    or k.not_ok > 0 or k.committed > 1 or k.units > 1 or h.offset is not null
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
