-- R4: leader overwrites its log
-- promise: G1
-- needs: raft
-- examined: select coalesce(sum(events), 0) from event_counts where event in ('append', 'truncate')
-- nothing: no event was traced
-- holds: No leader dropped entries in its own term.
-- rule: A leader that drops or replaces an entry of its own log.
-- source: Raft, figure 3, leader append-only
select broker_group, node, seq, incarnation, t, event, term, index
from turning_points
where was_leader and (event = 'truncate' or (event = 'append' and index <= last_index_least))
