-- R12: stale read
-- promise: G6
-- needs: raft
-- applies: select count(*) > 0 from event_counts where event = 'read'
-- examined: select coalesce(sum(events), 0) from event_counts where event = 'read'
-- nothing: no read was traced
-- holds: No read was answered from a term that was over.
-- rule: A read answered in a term, below what a newer term had committed before it began, by more
--   than the clocks may differ. Reads that began after a newer term's first commit are few, so only
--   those meet the commits.
-- source: Ongaro's dissertation, 6.4
with begins as (
  select broker_group, term, min(t) as t_commit
  from raft
  where event = 'commit'
  group by broker_group, term
),
suspects as (
  select
    r.broker_group, r.node, r.seq, r.incarnation, r.term, r.t_begin, r.t, r.index,
    r.t_begin - coalesce(max(s.clock_error_ns), cast(0 as bigint)) as at
  from raft r
  join begins b on r.broker_group = b.broker_group
  cross join run_settings s
  where r.event = 'read' and b.term > r.term
    and b.t_commit < r.t_begin - coalesce(s.clock_error_ns, cast(0 as bigint))
  group by r.broker_group, r.node, r.seq, r.incarnation, r.term, r.t_begin, r.t, r.index
),
old_terms as (
  select distinct broker_group, term from suspects
),
line as (
  select
    o.broker_group, o.term, c.t as at, 1 as turn, c.node, c.seq, c.index as committed,
    cast(null as bigint) as index, cast(null as bigint) as t, cast(null as bigint) as t_begin,
    cast(null as int) as incarnation
  from raft c join old_terms o on c.broker_group = o.broker_group and c.term > o.term
  where c.event = 'commit'
  union all
  select broker_group, term, at, 0, node, seq, null, index, t, t_begin, incarnation
  from suspects
),
answered as (
  select
    *,
    max(committed) over (
      partition by broker_group, term order by at, turn, node, seq
      rows between unbounded preceding and 1 preceding
    ) as newest
  from line
),
stale as (
  select broker_group, node, seq, incarnation, term, t_begin, t, index, newest
  from answered
  where turn = 0 and newest > index
)
select
  s.broker_group, s.node, s.seq, s.incarnation, s.term, s.t_begin, s.t, s.index,
  min_by(struct(c.index, c.node, c.term, c.seq, c.t), struct(c.t, c.node, c.seq)) as commit
from stale s join raft c on s.broker_group = c.broker_group and s.newest = c.index
where c.event = 'commit' and c.term > s.term
group by s.broker_group, s.node, s.seq, s.incarnation, s.term, s.t_begin, s.t, s.index
