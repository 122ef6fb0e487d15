-- M3: wrong route
-- promise: G8
-- needs: ops
-- wants: faults
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'route' and type = 'ok')
--   and (select max(route_expire_ns) is not null from run_settings)
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'route' and type = 'ok'
-- nothing: no route was answered
-- holds: Once faults are over, every name server shows what the leaders have.
-- rule: A name server shows other queues, another permission, another leader or other members of a
--   topic at a broker group than that group's leader had from routes.expire_ms before the question to
--   after its answer, all that time outside of fault windows and without a change of the topic. A
--   topic that its leader does not have may be shown until a deletion at that name server is
--   acknowledged that was invoked after the last one at the leader had ended.
-- source: RocketMQ RouteInfoManager; issue 3168
with asked as (
  select
    v.op, v.broker_group, v.topic, v.node, v.t_invoke, v.t_complete, v.queues, v.perm, v.members,
    v.leader, v.t_invoke - s.route_expire_ns as t_since
  from topic_views v
  cross join run_settings s
  join calm_stretches c on c.t_from < v.t_invoke - s.route_expire_ns and c.t_to > v.t_complete
  where not v.by_owner
),
owners as (select * from topic_views where by_owner),
-- The leader's answers next before and next after the time in which the route could come right.
framed as (
  select
    a.op,
    max(case when o.t_complete <= a.t_since then o.t_invoke end) as t_first,
    min(case when o.t_invoke >= a.t_complete then o.t_complete end) as t_last
  from asked a
  join owners o on a.broker_group = o.broker_group and a.topic = o.topic
  group by a.op
),
steady as (
  select
    a.op, f.t_first, f.t_last, min(o.queues) as queues, min(o.perm) as perm,
    min(o.leader) as leader, min(o.members) as members, min(o.op) as owner_op
  from asked a
  join framed f on a.op = f.op
  join owners o on a.broker_group = o.broker_group and a.topic = o.topic
  where o.t_invoke >= f.t_first and o.t_complete <= f.t_last
  group by a.op, f.t_first, f.t_last
  having min(o.queues) = max(o.queues)
    and coalesce(min(o.perm), '') = coalesce(max(o.perm), '')
    and count(o.perm) in (0, count(*))
    and coalesce(min(o.members), '') = coalesce(max(o.members), '')
    and count(o.members) in (0, count(*))
),
-- A change that was answered in that time; or two of unknown outcome, either way, which may come
-- at any time: one alone would stay, and the leader's next answer would show it.
moved as (
  select a.op
  from asked a
  join steady s on a.op = s.op
  join ops c on a.topic = c.topic and a.broker_group = coalesce(c.broker_group, a.broker_group)
  where c.f in ('create_topic', 'delete_topic') and c.type <> 'fail'
    and (c.broker_group is not null or c.node = a.node)
    and c.t_invoke < s.t_last
  group by a.op, s.t_first
  having count_if(c.type = 'ok' and c.t_complete >= s.t_first) > 0
    or count_if(c.type = 'info' and coalesce(c.t_complete, c.t_invoke) >= s.t_first) > 0
    or count(distinct case when c.type = 'info' and c.broker_group is not null then c.f end) > 1
    or count_if(c.type = 'info' and c.broker_group is null) > 0
),
deleted as (
  select broker_group, topic, max(t_end) as t_deleted
  from topic_changes
  where f = 'delete_topic' and is_acked
  group by broker_group, topic
),
forgotten as (
  select d.broker_group, d.topic, o.node
  from deleted d
  join ops o on d.topic = o.topic
  where o.f = 'delete_topic' and o.type = 'ok' and o.broker_group is null and o.t_invoke > d.t_deleted
  group by d.broker_group, d.topic, o.node
),
compared as (
  select
    a.broker_group, a.topic, a.node, a.op, a.t_invoke, s.owner_op,
    struct(a.queues, a.perm, a.members) as shown,
    struct(s.queues, s.perm, s.members) as owned,
    case
      when size(s.queues) = 0 and size(a.queues) > 0 then
        case when g.node is not null then 'it shows a deleted topic' end
      when size(s.queues) > 0 and size(a.queues) = 0 then 'it lacks the topic'
      when s.queues <> a.queues then 'other queues'
      when s.perm <> a.perm then 'another permission'
      when s.leader <> a.leader then 'another leader'
      when s.members <> a.members then 'other members'
    end as problem
  from asked a
  join steady s on a.op = s.op
  left anti join moved m on a.op = m.op
  left join forgotten g on a.broker_group = g.broker_group and a.topic = g.topic and a.node = g.node
)
select
  broker_group, topic, node, problem, min(op) as route_op, count(*) as answers,
  min_by(shown, op) as shown, min_by(owned, op) as owned, min(owner_op) as owner_op
from compared
where problem is not null
group by broker_group, topic, node, problem
