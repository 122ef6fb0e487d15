-- R6: two entries committed at an index
-- promise: G1
-- needs: raft
-- wants: log
-- reaches: yes
-- examined: select coalesce(sum(events), 0) from event_counts where event in ('commit', 'apply')
-- nothing: no commit was traced
-- holds: No two nodes committed different entries at one index.
-- rule: Two entries committed at one index, anywhere, ever.
-- source: Raft, figure 3, state machine safety
select
  broker_group, index,
  min_by(
    struct(entry_term, chain, node, source, nullif(seq, -1) as seq),
    struct(entry_term, chain, node, source, seq)
  ) as one,
  max_by(
    struct(entry_term, chain, node, source, nullif(seq, -1) as seq),
    struct(entry_term, chain, node, source, seq)
  ) as other
from disputed_entries
where is_committed
group by broker_group, index
having min(entry_term) <> max(entry_term) or min(chain) <> max(chain)
