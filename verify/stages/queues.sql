-- The queues that were read after the heal, with `floor`, below which absence proves nothing, and
-- `was_drained`, which is false where the committed log goes on at or beyond the queue's end, or,
-- without a log, where something was acknowledged there.
with ends as (
  select
    r.broker_group, r.topic, r.queue,
    min(case when r.index >= f.first_index then r.offset end) as kept_from,
    max(r.offset) as last_offset
  from records r left join first_index f on r.broker_group = f.broker_group
  group by r.broker_group, r.topic, r.queue
),
acked_ends as (
  select broker_group, topic, queue, max(offset) as last_acked
  from acked
  where offset is not null
  group by broker_group, topic, queue
)
select
  q.broker_group, q.topic, q.queue, q.min_offset, q.max_offset, q.drained,
  case
    when f.first_index > 1
      then greatest(q.min_offset, coalesce(e.kept_from, cast(9223372036854775807 as bigint)))
    else q.min_offset
  end as floor,
  q.drained
    and coalesce(e.last_offset, cast(-1 as bigint)) < q.max_offset
    and (l.records > 0 or coalesce(a.last_acked, cast(-1 as bigint)) < q.max_offset) as was_drained
from run_queues q
cross join (select coalesce(sum(records), 0) as records from record_counts) l
left join ends e
  on q.broker_group = e.broker_group and q.topic = e.topic and q.queue = e.queue
left join acked_ends a
  on q.broker_group = a.broker_group and q.topic = a.topic and q.queue = a.queue
left join first_index f on q.broker_group = f.broker_group
