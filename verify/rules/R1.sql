-- R1: two leaders in a term
-- promise: G6
-- needs: raft
-- examined: select coalesce(sum(events), 0) from event_counts where event = 'role' and role = 'leader'
-- nothing: no node became leader
-- holds: Each term had one leader at most.
-- rule: Two nodes of a group that became leader in one term.
-- source: Raft, figure 3, election safety
select
  broker_group, term,
  min_by(struct(node, incarnation, seq, t), struct(node, seq)) as one,
  max_by(struct(node, incarnation, seq, t), struct(node, seq)) as other
from raft
where event = 'role' and role = 'leader'
group by broker_group, term
having min(node) <> max(node)
