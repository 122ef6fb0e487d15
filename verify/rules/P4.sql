-- P4: popped out of order
-- promise: G5
-- needs: ops
-- wants: log
-- applies: select (select count(*) from run_groups where ordered) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'pop') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'pop' and type = 'ok'
-- nothing: no pop showed a message
-- holds: In order, no message was handed out past one that was not acknowledged.
-- rule: An ok pop of an ordered group that shows a message of a queue, and not one that stands
--   before it there, was known to before the pop was invoked, and that no acknowledgement of the group
--   can have ended before the pop did, by a receipt that no later pop had replaced: it was invisible,
--   and the queue is blocked, or it comes first. Only pops that ended before any reset of
--   the group in the topic. Groups with tags are left out.
-- source: RocketMQ ConsumerOrderInfoManager
with pops as (
  select
    client_group, op, broker_group, topic, queue, min(process) as process, min(t_invoke) as t_invoke,
    min(t_complete) as t_complete, max(offset) as last_offset
  from pop_handouts h
  left anti join (select client_group from run_groups where of_some_tags) g
    on h.client_group = g.client_group
  where is_ordered and before_reset and offset is not null and queue is not null
  group by client_group, op, broker_group, topic, queue
),
first_acks as (
  select client_group, broker_group, topic, queue, offset, min(t_invoke) as t_acked
  from pop_acks
  where not is_void
  group by client_group, broker_group, topic, queue, offset
),
passed as (
  select
    p.client_group, p.op, p.broker_group, p.topic, p.queue, p.process, p.t_invoke, p.t_complete,
    p.last_offset, e.offset, e.op as known_by
  from pops p
  join known_ends e on p.broker_group = e.broker_group and p.topic = e.topic and p.queue = e.queue
  left join first_acks k
    on p.client_group = k.client_group and e.broker_group = k.broker_group and e.topic = k.topic
    and e.queue = k.queue and e.offset = k.offset
  left join queues f
    on e.broker_group = f.broker_group and e.topic = f.topic and e.queue = f.queue
  where e.offset < p.last_offset and e.t_known < p.t_invoke
    and coalesce(k.t_acked > p.t_complete, true) and coalesce(e.offset >= f.floor, true)
),
left_out as (
  select x.*
  from passed x
  left anti join pop_handouts h
    on x.op = h.op and x.broker_group = h.broker_group and x.topic = h.topic
    and x.queue = h.queue and x.offset = h.offset
)
select
  x.client_group, x.broker_group, x.topic, x.queue, x.op, x.process, x.t_invoke, x.last_offset,
  min(x.offset) as passed_offset, min_by(x.known_by, struct(x.offset, x.known_by)) as known_by,
  count(*) as passed, min(h.value) as value
from left_out x
join pop_handouts h
  on x.op = h.op and x.broker_group = h.broker_group and x.topic = h.topic and x.queue = h.queue
  and x.last_offset = h.offset
group by
  x.client_group, x.broker_group, x.topic, x.queue, x.op, x.process, x.t_invoke, x.last_offset
