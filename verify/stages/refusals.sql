-- Deliveries of each message to the groups that tell how often it may come again: `is_refused`: it
-- was not consumed, because the listener refused it or was interrupted.
select
  r.client_group, r.value, r.op, r.place_in_op, r.process, r.type, r.t_invoke, r.t_complete,
  r.broker_group, r.topic, r.queue, r.offset,
  coalesce(r.reconsume, 0) as reconsume,
  r.type <> 'ok' as is_refused,
  g.retries_max
from reads r
join run_groups g on r.client_group = g.client_group and g.retries_max is not null
where r.f = 'deliver' and r.value is not null
