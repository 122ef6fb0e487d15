-- P3: popped and lost
-- promise: G1
-- needs: ops
-- wants: log
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'pop'
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'send' and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: What a group had not acknowledged came again until it was a dead letter.
-- rule: A message that was acknowledged to its sender, on a topic that a group pops, that the group
--   did not acknowledge since its last delivery and that is no dead letter; and a pop of its topic
--   and broker group, after the heal began, that found nothing though every time that may have
--   hidden it was over, redelivery_ms before. In order, times of its whole queue count. A group with
--   tags is owed only what it was handed out once (C13), and one that was reset in the topic may have
--   been sent over what it did not get.
-- source: RocketMQ issue 7914
with popping as (
  select
    g.client_group, g.ordered, g.of_some_tags,
    coalesce(g.redelivery_ns, cast(0 as bigint)) as redelivery_ns, t.topic
  from run_groups g
  join run_group_topics t on g.client_group = t.client_group
  left semi join (select distinct client_group from ops where f = 'pop') p
    on g.client_group = p.client_group
),
wanted as (
  select
    p.client_group, p.ordered, p.of_some_tags, p.redelivery_ns, a.value, a.broker_group, a.topic,
    a.queue, min(a.offset) as offset, min(a.t_acked) as t_acked, min(a.op) as acked_op
  from acked a join popping p on a.topic = p.topic
  group by
    p.client_group, p.ordered, p.of_some_tags, p.redelivery_ns, a.value, a.broker_group, a.topic,
    a.queue
),
hidden as (
  select client_group, value, broker_group, topic, queue, op, t_invoke, t_over, true as is_handout
  from pop_handouts
  union all
  select client_group, value, broker_group, topic, queue, op, t_invoke, t_over, false
  from pop_changes
),
of_values as (
  select
    client_group, value, max(t_over) as t_over,
    max(case when is_handout then op end) as last_op,
    max(case when is_handout then t_invoke end) as last_invoked
  from hidden
  group by client_group, value
),
of_queues as (
  select client_group, broker_group, topic, queue, max(t_over) as t_over
  from hidden
  group by client_group, broker_group, topic, queue
),
unanswered as (
  select
    o.client_group, o.broker_group, o.topic,
    max(
      greatest(coalesce(o.t_complete, o.t_invoke), s.heal_from)
      + (o.due - o.t_invoke) div 10 * 11 + s.error_ns
    ) as t_over
  from ops o cross join pop_settings s
  where o.f = 'pop' and o.type = 'info' and o.due is not null
  group by o.client_group, o.broker_group, o.topic
),
empty_pops as (
  select
    o.client_group, o.broker_group, o.topic, max(o.t_invoke) as t_asked,
    max_by(o.op, struct(o.t_invoke, o.op)) as op
  from ops o cross join pop_settings s
  where o.f = 'pop' and o.type = 'ok' and o.queue is null and size(o.messages) = 0
    and o.t_invoke >= s.heal_from
  group by o.client_group, o.broker_group, o.topic
),
due as (
  select
    w.client_group, w.value, w.broker_group, w.topic, w.queue, w.offset, w.acked_op, v.last_op,
    v.last_invoked,
    greatest(
      w.t_acked, coalesce(v.t_over, w.t_acked), coalesce(u.t_over, w.t_acked),
      case when w.ordered then coalesce(q.t_over, w.t_acked) else w.t_acked end
    ) as t_visible,
    e.t_asked, e.op as empty_pop
  from wanted w
  join empty_pops e
    on w.client_group = e.client_group and w.broker_group = e.broker_group and w.topic = e.topic
  left join of_values v on w.client_group = v.client_group and w.value = v.value
  left join of_queues q
    on w.client_group = q.client_group and w.broker_group = q.broker_group and w.topic = q.topic
    and w.queue = q.queue
  left join unanswered u
    on w.client_group = u.client_group and w.broker_group = u.broker_group and w.topic = u.topic
  where e.t_asked > greatest(
      w.t_acked, coalesce(v.t_over, w.t_acked), coalesce(u.t_over, w.t_acked),
      case when w.ordered then coalesce(q.t_over, w.t_acked) else w.t_acked end
    ) + w.redelivery_ns
    and (v.last_op is not null or not w.of_some_tags)
),
-- Acknowledged by the receipt of a pop that may have been the last: one that was held may be.
consumed as (
  select distinct d.client_group, d.value
  from due d
  join pop_acks k on d.client_group = k.client_group and d.value = k.value
  left join pop_handouts h on k.pop_op = h.op and k.value = h.value
  where not k.is_void and coalesce(h.t_complete >= d.last_invoked, true)
),
dead as (
  select distinct p.client_group, r.value
  from popping p join reads r on r.topic = concat('%DLQ%', p.client_group)
  union
  select distinct p.client_group, r.named
  from popping p join records r on r.topic = concat('%DLQ%', p.client_group)
),
owed as (
  select
    d.client_group, d.value, d.broker_group, d.topic, d.queue, d.offset, d.acked_op, d.last_op,
    d.t_visible, d.empty_pop, d.t_asked
  from due d
  left anti join consumed c on d.client_group = c.client_group and d.value = c.value
  left anti join dead l on d.client_group = l.client_group and d.value = l.value
  left anti join pop_resets r
    on d.client_group = r.client_group and d.broker_group = r.broker_group and d.topic = r.topic
  left join queues f
    on d.broker_group = f.broker_group and d.topic = f.topic and d.queue = f.queue
  where coalesce(d.offset >= f.floor, true)
),
-- Of a transaction or a request no answer tells the offset: the logs do.
below as (
  select d.client_group, d.value, d.topic
  from (select distinct client_group, value, topic from owed where offset is null) d
  join standing s on d.value = s.value and d.topic = s.topic and s.node is not null
  left join queues f
    on s.broker_group = f.broker_group and s.topic = f.topic and s.queue = f.queue
  group by d.client_group, d.value, d.topic
  having max(case when coalesce(s.offset >= f.floor, true) then 1 else 0 end) = 0
)
select o.*
from owed o
left anti join below b
  on o.client_group = b.client_group and o.value = b.value and o.topic = b.topic
