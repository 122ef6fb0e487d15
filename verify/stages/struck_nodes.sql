-- Nodes at which a fault was aimed that took effect, or may have, and whether the node was its
-- group's master then: the one that had been the last to say so (null: none had by then). A target
-- that is no node is left out.
with nodes as (
  select broker_group, node from run_voters
  union
  select distinct broker_group, node from raft where event = 'role'
),
aimed as (
  select f.fault, f.name, f.t_start, f.effect, target
  from faults f lateral view explode(f.targets) e as target
  where f.effect in ('taken', 'unknown')
),
struck as (
  select distinct a.fault, a.name, a.t_start, a.effect, n.broker_group, n.node
  from aimed a
  join nodes n on a.target = concat(n.broker_group, '-', n.node)
),
said as (
  select
    s.fault, s.broker_group, s.node, max_by(r.node, struct(r.t, r.node, r.seq)) as master
  from struck s
  join raft r on s.broker_group = r.broker_group
  where r.event = 'role' and r.role = 'leader' and r.t <= s.t_start
  group by s.fault, s.broker_group, s.node
)
select
  s.fault, s.name, s.effect, s.t_start, s.broker_group, s.node,
  case when d.master is not null then d.master = s.node end as was_master
from struck s
left join said d
  on s.fault = d.fault and s.broker_group = d.broker_group and s.node = d.node
