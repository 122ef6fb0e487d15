-- M10: dead broker in a route
-- promise: G8
-- needs: ops, faults
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'route' and type = 'ok')
--   and (select max(route_gone_ns) is not null from run_settings)
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'route' and type = 'ok'
-- nothing: no route was answered
-- holds: A name server forgets a broker whose process has ended.
-- rule: A name server shows a member of a broker group whose process was ended by a fault that was
--   seen to take effect (kill, terminate, power-failure, whatever their target) more than
--   routes.gone_ms before the question, and that was started again only after the answer. Only where
--   no other fault touches the time from that fault's beginning to the answer.
-- source: RocketMQ RouteInfoManager.onChannelDestroy, BrokerHousekeepingService
with ended as (
  select fault, name, target, t_start, t_effect, coalesce(t_heal, cast(4000000000000000000 as bigint)) as t_heal
  from faults lateral view explode(targets) e as target
  where effect = 'taken' and t_effect is not null
    and name in (
      'kill', 'kill-minority', 'kill-majority', 'kill-all', 'terminate', 'power-failure',
      'power-failure-all'
    )
),
shown as (
  select v.op, v.broker_group, v.topic, v.node, v.t_invoke, v.t_complete, v.members, member
  from topic_views v lateral view explode(split(v.members, ' ')) e as member
  where not v.by_owner
),
dead as (
  select
    s.op, s.broker_group, s.topic, s.node, s.member, s.members, s.t_invoke, s.t_complete, d.fault,
    d.name, d.t_start, d.t_effect
  from shown s
  join ended d on d.target = concat(s.broker_group, '-', s.member)
  cross join run_settings r
  where s.t_invoke > d.t_effect + r.route_gone_ns and s.t_complete < d.t_heal
)
select
  d.broker_group, d.node, d.member, d.fault, min(d.op) as route_op, count(*) as answers,
  min_by(struct(d.topic, d.members, d.t_invoke), d.op) as shown, min(d.name) as name,
  min(d.t_effect) as t_effect
from dead d
left anti join faults o
  on o.fault <> d.fault and o.effect in ('taken', 'unknown') and o.t_start <= d.t_complete
  and coalesce(o.t_healed, cast(4000000000000000000 as bigint)) >= d.t_start
group by d.broker_group, d.node, d.member, d.fault
