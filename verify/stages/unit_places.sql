-- Per replica, every offset of a queue at which a record or a ConsumeQueue unit stands: how many of
-- each, how many of the records are committed, how many of those owe a unit, and whose unit was not
-- found right by the exporter; where the committed record and the unit say that the record lies.
-- parts: offset
with told as (
  select
    broker_group, node, topic, queue, queue_offset as offset, true as is_record,
    coalesce(committed, false) as committed, cq_ok, position, size, tag_hash
  from log
  where kind in ('message', 'half', 'op', 'final')
  union all
  select broker_group, node, topic, queue, queue_offset, false, false, null, position, size, tag_hash
  from cq
)
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
