-- P2: acknowledged and popped again
-- promise: G5
-- needs: ops
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'ack'
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'ack' and type = 'ok'
-- nothing: nothing that was popped was acknowledged
-- holds: What a group had acknowledged in time was never handed out to it again.
-- rule: An ok pop of a value that was invoked after an acknowledgement by the group had been answered
--   ok, within the time of a receipt that nothing had replaced. In order, a message comes again
--   with one ahead of it, so that all ahead of it in its pop and queue must be acknowledged so. Only pops
--   that ended before any reset of the group in the topic: it may send the group back.
-- source: RocketMQ AckMessageProcessor, ConsumerOrderInfoManager
with sure as (
  select
    client_group, value, pop_op, is_ordered, min(t_complete) as t_done,
    min_by(op, struct(t_complete, op)) as ack_op
  from pop_acks
  where is_sure
  group by client_group, value, pop_op, is_ordered
),
in_order as (
  select
    h.client_group, h.value, s.ack_op,
    max(coalesce(s.t_done, t.never)) over (
      partition by h.op, h.broker_group, h.topic, h.queue order by h.offset, h.place_in_op
      rows between unbounded preceding and current row
    ) as t_done
  from pop_handouts h
  cross join pop_settings t
  left join sure s on h.client_group = s.client_group and h.value = s.value and h.op = s.pop_op
  where h.is_ordered
),
done as (
  select client_group, value, ack_op, t_done from sure where not is_ordered
  union all
  select client_group, value, ack_op, t_done from in_order where ack_op is not null
)
select
  b.client_group, b.value, b.op, b.place_in_op, b.process, b.t_invoke,
  min(d.t_done) as t_acknowledged, min_by(d.ack_op, struct(d.t_done, d.ack_op)) as ack_op,
  min(struct(b.broker_group, b.topic, b.queue, b.offset, b.reconsume)) as at
from pop_handouts b
join done d on b.client_group = d.client_group and b.value = d.value
left anti join tried_twice w on b.value = w.value
where b.t_invoke > d.t_done and b.before_reset
group by b.client_group, b.value, b.op, b.place_in_op, b.process, b.t_invoke
