-- R7: leader lacks committed entries
-- promise: G1
-- needs: raft
-- reaches: yes
-- applies: select (select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--   or (select count(*) > 0 from event_counts where event = 'commit')
-- examined: select coalesce(sum(events), 0) from event_counts where event = 'role' and role = 'leader'
-- nothing: no node became leader
-- holds: Every leader held all that was committed before its term.
-- rule: A leader that lacks what was committed in terms before its own. Chains make the last of
--   those entries stand for all before it. What the node last told of that index in this incarnation
--   is what it holds, unless an install has covered it; what it told before a kill may have been
--   replaced by what the kill kept it from telling.
-- source: Raft, figure 3, leader completeness
with ends as (
  select broker_group, term, max(index) as index
  from raft
  where event in ('commit', 'install')
  group by broker_group, term
),
commits as (
  select
    e.broker_group, e.term, e.index,
    max_by(
      struct(r.index, r.entry_term, r.chain, r.node, r.seq, r.t),
      struct(coalesce(r.entry_term, cast(-1 as bigint)), r.node, r.seq)
    ) as entry
  from ends e join raft r
    on e.broker_group = r.broker_group and e.term = r.term and e.index = r.index
  where r.event in ('commit', 'install')
  group by e.broker_group, e.term, e.index
),
owed as (
  select
    l.broker_group, l.node, l.incarnation, l.seq, l.t, l.term,
    l.last_index_most as last_index, l.installed,
    max(c.index) as index,
    max_by(c.entry, struct(c.index, c.term)) as committed
  from turning_points l join commits c on l.broker_group = c.broker_group
  where l.event = 'role' and l.role = 'leader' and c.term < l.term
  group by l.broker_group, l.node, l.incarnation, l.seq, l.t, l.term, l.last_index_most, l.installed
),
held as (
  select
    o.broker_group, o.node, o.seq, max_by(struct(r.seq, r.entry_term, r.chain), r.seq) as held
  from owed o join raft r on o.broker_group = r.broker_group and o.node = r.node and o.index = r.index
  where r.event in ('append', 'start', 'install') and r.seq < o.seq
    and coalesce(r.incarnation, -1) = coalesce(o.incarnation, -1)
  group by o.broker_group, o.node, o.seq
)
select o.broker_group, o.term, o.node, o.seq, o.incarnation, o.t, o.last_index, o.committed, h.held
from owed o left join held h on o.broker_group = h.broker_group and o.node = h.node and o.seq = h.seq
where coalesce(o.installed, cast(-1 as bigint)) < o.index
  and (o.last_index < o.index or coalesce(h.held.chain <> o.committed.chain, false))
