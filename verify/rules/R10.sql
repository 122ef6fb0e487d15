-- R10: applied out of order
-- promise: G5
-- needs: raft
-- reaches: yes
-- examined: select coalesce(sum(events), 0) from event_counts where event = 'apply'
-- nothing: nothing was applied
-- holds: Entries are applied in order, each once.
-- rule: Within an incarnation each range applied begins where the one before ended, what is applied
--   at an index is the same everywhere, and nothing is applied above what the node has ever told as
--   its commit index: a restart may forget that, and what it had covered stays committed. A node
--   that tells of no commit is not asked; of a master and its slaves only one that tells of some in
--   this incarnation: who was the master may be a slave by now.
-- source: Raft, figure 3, state machine safety
with above as (
  select broker_group, node, incarnation, seq, t, first, index, applied, committed
  from turning_points
  where event = 'apply' and index > coalesce(committed, cast(-1 as bigint))
),
commits as (
  select r.broker_group, r.node, r.incarnation, max(r.index) as index
  from raft r cross join run_settings s
  where r.event in ('commit', 'install')
    and not (s.own_system and s.engine in ('async', 'sync'))
  group by r.broker_group, r.node, r.incarnation
),
ever as (
  select
    a.broker_group, a.node, a.seq, a.incarnation, a.t, a.first, a.index, a.applied,
    greatest(coalesce(a.committed, max(c.index)), coalesce(max(c.index), a.committed)) as committed
  from above a left join commits c
    on a.broker_group = c.broker_group and a.node = c.node and c.incarnation < a.incarnation
  group by a.broker_group, a.node, a.seq, a.incarnation, a.t, a.first, a.index, a.applied, a.committed
),
differing as (
  select broker_group, index
  from disputed_entries
  where is_applied
  group by broker_group, index
  having min(entry_term) <> max(entry_term) or min(chain) <> max(chain)
)
select
  broker_group, node, seq, 'begins elsewhere than the one before ended' as problem,
  incarnation, t, first, index, applied as applied_before, committed
from turning_points
where event = 'apply' and first <> applied + 1
union all
select
  broker_group, node, seq, 'above the commit index' as problem,
  incarnation, t, first, index, applied, committed
from ever
where index > committed
union all
select
  e.broker_group, e.node, e.seq, 'another entry than elsewhere' as problem,
  r.incarnation, r.t, r.first, e.index, cast(null as bigint), cast(null as bigint)
from disputed_entries e
join differing d on e.broker_group = d.broker_group and e.index = d.index
join raft r on e.broker_group = r.broker_group and e.node = r.node and e.seq = r.seq
where e.is_applied
