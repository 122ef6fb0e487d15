-- R5: logs do not match
-- promise: G3
-- needs: raft
-- wants: log
-- reaches: yes
-- examined: select (select coalesce(sum(events), 0) from event_counts where event = 'append')
--   + (select coalesce(sum(records), 0) from record_counts)
-- nothing: no append was traced
-- holds: Logs that agree on an entry agree on all before it.
-- rule: One index and term, two chains.
-- source: Raft, figure 3, log matching
select
  broker_group, index, entry_term,
  min_by(struct(chain, node, source, nullif(seq, -1) as seq), struct(chain, node, source, seq)) as one,
  max_by(struct(chain, node, source, nullif(seq, -1) as seq), struct(chain, node, source, seq)) as other
from disputed_entries
group by broker_group, index, entry_term
having min(chain) <> max(chain)
