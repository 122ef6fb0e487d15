-- Where messages stand among the dead letters of the groups that tell how often a message may come
-- again, and that do not pop: in the committed logs, or shown by a read.
select distinct g.client_group, d.broker_group, d.topic, d.queue, d.offset, d.value, g.retries_max
from (
  select broker_group, topic, queue, offset, named as value
  from records
  where kind = 'message' and startswith(topic, '%DLQ%')
  union all
  select broker_group, topic, queue, offset, value
  from reads
  where startswith(topic, '%DLQ%') and offset is not null
) d
join run_groups g on d.topic = concat('%DLQ%', g.client_group) and g.retries_max is not null
left anti join (select distinct client_group from ops where f = 'pop') p
  on g.client_group = p.client_group
where d.value is not null
