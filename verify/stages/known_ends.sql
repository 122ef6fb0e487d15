-- When something at an offset was first known to be there (`t_known`): acknowledged or read ok, by
-- which operation.
select
  broker_group, topic, queue, offset, min(t_known) as t_known,
  min_by(op, struct(t_known, op)) as op
from (
  select broker_group, topic, queue, offset, t_acked as t_known, op from acked_places
  union all
  select broker_group, topic, queue, offset, t_complete, op
  from reads
  where type = 'ok' and offset is not null and queue is not null and t_complete is not null
) told
group by broker_group, topic, queue, offset
