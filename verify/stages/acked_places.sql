-- Where what was acknowledged stands, as far as it is known: the offset that the answer told; of a
-- transaction that of its record, where the logs have it at one place only.
select broker_group, topic, queue, offset, value, t_acked, op, on_user_topic
from acked
where offset is not null and queue is not null and t_acked is not null
union all
select f.broker_group, f.topic, f.queue, f.offset, a.value, a.t_acked, a.op, true as on_user_topic
from acked a
join (
  select
    value, min(broker_group) as broker_group, min(topic) as topic, min(queue) as queue,
    min(offset) as offset
  from standing
  where node is not null and on_user_topic
  group by value
  having count(*) = 1
) f on a.value = f.value
where a.tx is not null and a.t_acked is not null
