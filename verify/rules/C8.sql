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
--   behind its beginning: where sending it back fails, the member tries it again by itself.
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
)
select
  case when b.refused_op is null then 'it jumped' else 'beyond the last retry' end as problem,
  b.client_group, b.value, b.op, b.place_in_op, b.reconsume, b.retries_max, b.refused_op, b.process,
  b.t_invoke, b.topic, b.queue, b.offset
from before b
left join calm_stretches c
  on b.t_refused > c.t_from + 5000000000 and b.t_invoke < c.t_to
where b.refused_op is null or (b.reconsume > b.retries_max and c.t_from is not null)
