-- C7: wrong dead letter
-- promise: G5
-- needs: ops
-- wants: log, faults
-- applies: select (select count(*) from run_groups where retries_max is not null) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'deliver') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'deliver'
-- nothing: nothing was delivered
-- holds: A message went to the dead letters only after its last retry, and once.
-- rule: A message among the dead letters of a group with retries_max whose delivery with
--   reconsume = retries_max or more was never refused. Or one that stands there at more places than
--   it was refused at that count, all of them outside of fault windows and five seconds behind
--   one: a refusal whose answer is lost may be told twice.
-- source: RocketMQ CONSUMER_SEND_MSG_BACK
with told_places as (
  select * from dead_letters where broker_group is not null and queue is not null
),
stands as (
  -- A read that does not tell all of its place adds none to one that it may be.
  select d.*
  from dead_letters d
  left anti join told_places t
    on d.client_group = t.client_group and d.value = t.value and d.offset = t.offset
    and (d.broker_group is null or d.queue is null)
    and coalesce(d.broker_group = t.broker_group, true) and coalesce(d.queue = t.queue, true)
),
places as (
  select
    client_group, value, retries_max, count(*) as places,
    min_by(
      struct(broker_group, topic, queue, offset),
      struct(coalesce(broker_group, '') as broker_group, queue, offset)
    ) as first_place
  from stands
  group by client_group, value, retries_max
),
last_refusals as (
  select
    r.client_group, r.value, r.op,
    max(case when c.t_from is not null then 1 else 0 end) as is_calm
  from refusals r
  left semi join places p on r.client_group = p.client_group and r.value = p.value
  left join calm_stretches c
    on r.t_invoke > c.t_from + 5000000000
    and coalesce(r.t_complete, r.t_invoke) + 5000000000 < c.t_to
  where r.is_refused and r.reconsume >= r.retries_max
  group by r.client_group, r.value, r.op
),
counted as (
  select
    client_group, value, count(*) as refusals, min(is_calm) = 1 as all_calm, max(op) as op
  from last_refusals
  group by client_group, value
),
tried as (
  select client_group, value, max(reconsume) as reconsume, count(*) as deliveries
  from refusals
  group by client_group, value
)
select
  case when c.refusals is null then 'before its last retry' else 'twice' end as problem,
  p.client_group, p.value, p.places, c.refusals, c.op, p.retries_max,
  coalesce(t.deliveries, 0) as deliveries, t.reconsume, p.first_place
from places p
left join counted c on p.client_group = c.client_group and p.value = c.value
left join tried t on p.client_group = t.client_group and p.value = t.value
where c.refusals is null or (p.places > c.refusals and c.all_calm)
