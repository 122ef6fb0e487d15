-- R3: term decreases
-- promise: G6
-- needs: raft
-- examined: select coalesce(sum(events), 0) from event_counts
-- nothing: no event was traced
-- holds: A node's term never fell.
-- rule: A node whose term is lower than it was at the event before, restarts or not. Only nodes of
--   which two terms overlap are put in order. A node whose store a fault has replaced by an empty one
--   (`remove-follower`, `remove-leader`, `replace-member`, `wiped-store`, `lost-machine`, `old-copy`,
--   `change-while-cut`, `add-learner`, `add-voter`) begins again at term 0, as another member of the
--   same name.
-- source: Raft, figure 2 and 5.1
with terms as (
  select broker_group, node, term, min(seq) as first_seq, max(seq) as last_seq
  from raft
  where term is not null
  group by broker_group, node, term
),
followed as (
  select
    broker_group, node, last_seq,
    lead(first_seq) over (partition by broker_group, node order by term) as next_seq
  from terms
),
suspects as (
  select distinct broker_group, node from followed where next_seq < last_seq
),
told as (
  select
    r.broker_group, r.node, r.seq, r.incarnation, r.t, r.event, r.term,
    lag(r.term) over (partition by r.broker_group, r.node order by r.seq) as term_before
  from raft r join suspects s on r.broker_group = s.broker_group and r.node = s.node
  where r.term is not null
),
falls as (
  select * from told where term < term_before
)
select
  f.broker_group, f.node, f.seq, f.incarnation, f.t, f.event, f.term, f.term_before
from falls f
left anti join renewed_nodes n
  on f.event = 'start' and f.term = 0 and f.t >= n.t_from
  and concat(f.broker_group, '-', f.node) = n.target
