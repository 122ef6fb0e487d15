-- M16: name server lacks what was acknowledged
-- promise: G5
-- needs: ops
-- wants: faults
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'route' and type = 'ok')
--   and (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'create_topic' and type = 'ok')
--   and (select coalesce(bool_or(own_system), false) from run_settings)
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'create_topic' and type = 'ok'
-- nothing: no change of a topic was acknowledged
-- holds: A change of a topic is acknowledged when name servers know it.
-- rule: A name server, asked after a topic had been made or changed at a broker group and that was
--   acknowledged, lacks it there or shows other queues or another permission. Only where no other
--   change of it, at the group or at that name server, may have come in between; where the change
--   took less than 0.9 s, since a leader waits a second at most for a name server that does not
--   answer; and where no fault but `slow-registration`, nor the second after one, touches the time
--   from that change's invoke to the route's answer.
-- source: RocketMQ BrokerController.registerIncrementBrokerData; promise of UPDATE_AND_CREATE_TOPIC
with asked as (
  select v.op, v.broker_group, v.topic, v.node, v.t_invoke, v.t_complete, v.queues, v.perm
  from topic_views v
  where not v.by_owner
),
lasts as (
  select a.op, max(c.t_invoke) as t_changed, max_by(c.op, struct(c.t_invoke, c.op)) as change_op
  from asked a
  join topic_changes c on a.broker_group = c.broker_group and a.topic = c.topic
  where c.is_acked and c.t_end < a.t_invoke
  group by a.op
),
suspects as (
  select
    a.*, l.change_op, l.t_changed, c.queues as wanted_queues, c.perm as wanted_perm,
    case
      when size(a.queues) = 0 then 'it lacks the topic'
      when a.queues <> c.queues then 'other queues'
      when a.perm <> c.perm then 'another permission'
    end as problem
  from lasts l
  join asked a on l.op = a.op
  join topic_changes c on l.change_op = c.op
  where c.f = 'create_topic' and c.t_end - c.t_invoke < cast(900000000 as bigint)
),
wrong as (select * from suspects where problem is not null),
unsure as (
  select distinct w.op
  from wrong w
  join ops o on w.topic = o.topic and w.broker_group = coalesce(o.broker_group, w.broker_group)
  where o.f in ('create_topic', 'delete_topic') and o.type <> 'fail' and o.op <> w.change_op
    and (o.broker_group is not null or o.node = w.node)
    and case when o.type = 'ok' then o.t_complete else cast(9223372036854775807 as bigint) end >= w.t_changed
    and o.t_invoke < w.t_complete
  union
  select w.op
  from wrong w
  join faults f
    on f.t_start <= w.t_complete
    and coalesce(f.t_healed + cast(1000000000 as bigint), w.t_changed) >= w.t_changed
  where f.effect in ('taken', 'unknown') and f.name <> 'slow-registration'
)
select
  w.broker_group, w.topic, w.node, w.op as route_op, w.problem, w.change_op, w.wanted_perm, w.perm,
  w.queues, w.wanted_queues, w.t_changed, w.t_invoke
from wrong w
left anti join unsure u on w.op = u.op
