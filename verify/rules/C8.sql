-- C8: wrong reconsume count
-- promise: G5
-- needs: ops
-- wants: faults
-- applies: select (select count(*) from run_groups where retries_max is not null) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'deliver') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'deliver'
-- nothing: nothing was delivered
-- holds: A message's reconsume count tells how often it had been refused, and ends at retries_max.
-- rule: In a group with retries_max, a delivery with a reconsume count above 0 and no refused delivery
--   of the message with the count below it, invoked before. Or a delivery above retries_max, where
--   the refusal before it and itself lie in one stretch outside of fault windows, five seconds
--   behind its beginning: where sending it back fails, the member tries it again by itself. Or it did
--   not rise: the message came at more places of the retry topic with one count than it was refused
--   (twice by one delivery that shows it twice) with the count below it, all of them first delivered in such a stretch, twenty seconds behind its
--   beginning: a refusal whose answer was lost may have stored it more than once before.
-- source: RocketMQ CONSUMER_SEND_MSG_BACK
with before as (
  select
    d.client_group, d.value, d.op, d.place_in_op, d.reconsume, d.retries_max, d.process,
    d.t_invoke, d.topic, d.queue, d.offset,
    max(r.op) as refused_op, max(coalesce(r.t_complete, r.t_invoke)) as t_refused
  from refusals d
  left join refusals r
    on d.client_group = r.client_group and d.value = r.value
    and r.is_refused and r.reconsume = d.reconsume - 1 and r.op < d.op
  where d.reconsume > 0
  group by
    d.client_group, d.value, d.op, d.place_in_op, d.reconsume, d.retries_max, d.process,
    d.t_invoke, d.topic, d.queue, d.offset
),
first_at as (
  select
    client_group, value, reconsume, retries_max, broker_group, topic, queue, offset, min(op) as op,
    min(t_invoke) as t_invoke
  from refusals
  where startswith(topic, '%RETRY%') and queue is not null and offset is not null
  group by client_group, value, reconsume, retries_max, broker_group, topic, queue, offset
),
came as (
  select
    f.client_group, f.value, f.reconsume, f.retries_max, count(*) as places, max(f.op) as op
  from first_at f
  join calm_stretches c on f.t_invoke > c.t_from + 20000000000 and f.t_invoke < c.t_to
  group by f.client_group, f.value, f.reconsume, f.retries_max
),
refused as (
  select client_group, value, reconsume, count(*) as refusals, max(op) as op
  from refusals
  where is_refused
  group by client_group, value, reconsume
),
stuck as (
  select
    c.client_group, c.value, c.reconsume, c.retries_max, c.op, c.places,
    coalesce(r.refusals, cast(0 as bigint)) as refusals, r.op as refused_op
  from came c
  left join refused r
    on c.client_group = r.client_group and c.value = r.value and r.reconsume = c.reconsume - 1
  where c.places > coalesce(r.refusals, cast(0 as bigint))
)
select
  case when b.refused_op is null then 'it jumped' else 'beyond the last retry' end as problem,
  b.client_group, b.value, b.op, b.place_in_op, b.reconsume, b.retries_max, b.refused_op, b.process,
  b.t_invoke, b.topic, b.queue, b.offset, cast(null as bigint) as places,
  cast(null as bigint) as refusals
from before b
left join calm_stretches c
  on b.t_refused > c.t_from + 5000000000 and b.t_invoke < c.t_to
where b.refused_op is null or (b.reconsume > b.retries_max and c.t_from is not null)
union all
select
  'it did not rise', s.client_group, s.value, s.op, d.place_in_op, s.reconsume, s.retries_max,
  s.refused_op, d.process, d.t_invoke, d.topic, d.queue, d.offset, s.places, s.refusals
from stuck s
join refusals d on s.client_group = d.client_group and s.value = d.value and s.op = d.op
