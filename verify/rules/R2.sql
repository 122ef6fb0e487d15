-- R2: two votes in a term
-- promise: G6
-- needs: raft
-- applies: select (select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--   or (select count(*) > 0 from event_counts where event = 'vote')
-- examined: select coalesce(sum(events), 0) from event_counts where event = 'vote'
-- nothing: no vote was traced
-- holds: No node voted twice in a term.
-- rule: A node that voted for two candidates in one term, restarts or not, and whatever fault replaced
--   its store in between: that a lost disk's vote is given again under the same name is what must not be.
-- source: Raft, 5.2; decision 7
select
  broker_group, node, term,
  min_by(struct(peer, incarnation, seq, t), struct(peer, seq)) as one,
  max_by(struct(peer, incarnation, seq, t), struct(peer, seq)) as other
from raft
where event = 'vote' and peer is not null
group by broker_group, node, term
having min(peer) <> max(peer)
