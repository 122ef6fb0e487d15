-- R14: replicas' states differ
-- promise: G5
-- needs: raft
-- applies: select count(*) > 0 from event_counts where event = 'state'
-- examined: select coalesce(sum(events), 0) from event_counts where event = 'state'
-- nothing: no state was traced
-- holds: Replicas that applied the same entries hold the same state.
-- rule: Two digests of the replicated state of one group after the same index.
-- source: own rule
select
  broker_group, index,
  min_by(struct(chain, node, incarnation, seq), struct(chain, node, seq)) as one,
  max_by(struct(chain, node, incarnation, seq), struct(chain, node, seq)) as other
from raft
where event = 'state' and index is not null and chain is not null
group by broker_group, index
having min(chain) <> max(chain)
