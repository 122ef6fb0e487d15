-- M11: route goes back to an older leader
-- promise: G8
-- needs: ops, raft
-- wants: faults
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'route' and type = 'ok'
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'route' and type = 'ok'
-- nothing: no route was answered
-- holds: A name server that has heard of a leader takes none of an older term any more.
-- rule: A name server shows a leader all of whose terms, as far as it had led by the answer, are older
--   than each in which the leader of an earlier answer of that name server can have led. Only where a
--   third member is in both answers and no fault in between was aimed at it or at a name server,
--   but for a partition of peers: the name server knew the group all the while. A topic without WRITE proves nothing: it may be shown
--   with an acting leader.
-- source: RocketMQ RouteInfoManager.registerBroker (DataVersion.stateVersion); docs/DIVERGENCE.md
with terms as (
  select distinct broker_group, node, term, t
  from raft
  where event = 'role' and role = 'leader'
),
views as (
  select
    op, broker_group, topic, node, leader, members, t_invoke, t_complete,
    perm in ('2', '3', '6', '7') as takes_writes
  from topic_views
  where not by_owner and leader is not null and leader <> '-'
),
-- Answers of several topics at the same place say the same: the first and last of each leader do.
dated as (
  select
    v.op, v.broker_group, v.topic, v.node, v.leader, v.members, v.t_invoke, v.t_complete,
    v.takes_writes, min(t.term) as term_min, max(t.term) as term_max
  from views v
  join terms t on v.broker_group = t.broker_group and v.leader = t.node and t.t <= v.t_complete
  group by
    v.op, v.broker_group, v.topic, v.node, v.leader, v.members, v.t_invoke, v.t_complete,
    v.takes_writes
),
back as (
  select
    b.broker_group, b.node, b.leader, b.op, b.topic, b.term_max, b.members, b.t_invoke, b.t_complete,
    a.op as earlier_op, a.leader as earlier_leader, a.term_min as earlier_term,
    a.members as earlier_members, a.t_invoke as t_earlier
  from dated b
  join dated a
    on b.broker_group = a.broker_group and b.node = a.node
    and a.t_complete < b.t_invoke and a.term_min > b.term_max
  where b.takes_writes
),
witnesses as (
  select
    b.op, b.earlier_op, b.broker_group, b.t_earlier, b.t_complete, member
  from back b lateral view explode(split(b.members, ' ')) e as member
  where member <> b.leader and member <> '-' and array_contains(split(b.earlier_members, ' '), member)
),
aimed as (
  select
    f.t_start, coalesce(f.t_healed, cast(4000000000000000000 as bigint)) as t_end, f.name, target
  from faults f lateral view explode(f.targets) e as target
  where f.effect in ('taken', 'unknown')
),
touched as (
  select distinct w.op, w.earlier_op, w.member
  from witnesses w
  join aimed f on f.t_start <= w.t_complete and f.t_end >= w.t_earlier
  where f.name like '%name-server%' or f.name in ('cut-registration', 'isolate-node')
    or (
      f.target = concat(w.broker_group, '-', w.member)
      -- These cut peers from each other alone.
      and f.name not in (
        'partition-all', 'partition-halves', 'partition-third', 'partition-ring',
        'partition-bridge', 'partition-leader-in-majority', 'partition-leader-in-minority'
      )
    )
),
known as (
  select w.op, w.earlier_op, min(w.member) as member
  from witnesses w
  left anti join touched t
    on w.op = t.op and w.earlier_op = t.earlier_op and w.member = t.member
  group by w.op, w.earlier_op
)
select
  b.broker_group, b.node, b.leader, b.term_max as term, min(b.op) as route_op,
  count(distinct b.op) as answers,
  min_by(struct(b.topic, b.members, b.t_invoke), struct(b.op, b.earlier_op)) as shown,
  max(b.earlier_term) as earlier_term,
  min_by(struct(b.earlier_op, b.earlier_leader, b.earlier_members, k.member), struct(b.op, b.earlier_op))
    as earlier
from back b
join known k on b.op = k.op and b.earlier_op = k.earlier_op
group by b.broker_group, b.node, b.leader, b.term_max
