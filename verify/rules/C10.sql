-- C10: retried too early
-- promise: G5
-- needs: ops
-- applies: select (select count(*) from run_groups where retry_delay_ns is not null) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'deliver') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'deliver'
-- nothing: nothing was delivered
-- holds: What a listener refused came again no sooner than after the group's delay.
-- rule: In a group with retry_delay_ms, the first delivery of a place in its retry topic, invoked less
--   than nine tenths of that delay after the first refused delivery with the count below it had
--   ended; a refusal that was interrupted counts from its invoke. A tenth is left to the brokers'
--   clocks.
-- source: RocketMQ CONSUMER_SEND_MSG_BACK, delayLevel
with retried as (
  select
    client_group, value, broker_group, topic, queue, offset, min(op) as op,
    min(t_invoke) as t_invoke, min(reconsume) as reconsume
  from refusals
  where startswith(topic, '%RETRY%') and queue is not null and offset is not null
  group by client_group, value, broker_group, topic, queue, offset
),
refused as (
  select
    client_group, value, reconsume,
    min(case when type = 'fail' then t_complete else t_invoke end) as t_refused,
    min(op) as op
  from refusals
  where is_refused
  group by client_group, value, reconsume
)
select
  r.client_group, r.value, r.op, r.reconsume, r.broker_group, r.topic, r.queue, r.offset, r.t_invoke,
  f.op as refused_op, f.t_refused, r.t_invoke - f.t_refused as waited_ns, g.retry_delay_ns
from retried r
join run_groups g on r.client_group = g.client_group and g.retry_delay_ns is not null
join refused f
  on r.client_group = f.client_group and r.value = f.value and f.reconsume = r.reconsume - 1
cross join run_settings s
where r.t_invoke + coalesce(s.clock_error_ns, cast(0 as bigint))
  < f.t_refused + g.retry_delay_ns div 10 * 9
