-- R8: commit index goes wrong
-- promise: G1
-- needs: raft
-- reaches: yes
-- applies: select (select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--   or (select count(*) > 0 from event_counts where event = 'commit')
-- examined: select coalesce(sum(events), 0) from event_counts where event = 'commit'
-- nothing: no commit was traced
-- holds: Commit indexes only rise, and stay within the log.
-- rule: A commit index that falls, or is beyond the log, or a leader's on an older term's entry. It
--   falls only within an incarnation: a restart may forget it. It is beyond the log also where a
--   truncation takes what it had reached.
-- source: Raft, 5.3 and 5.4.2
with judged as (
  select
    broker_group, node, seq, incarnation, t, event, term, index, entry_term,
    committed as committed_before, last_index_most as last_index,
    filter(
      array(
        case when event = 'commit' and index < committed then 'below what it was' end,
        case when event = 'commit' and index > last_index_most then 'beyond the log' end,
        case when event = 'truncate' and index <= committed then 'the log is cut below it' end,
        case when event = 'commit' and was_leader and entry_term <> term
          then 'a leader counted for an entry of another term' end
      ),
      problem -> problem is not null
    ) as problems
  from turning_points
  where event = 'truncate' or (
    event = 'commit' and (index < committed or index > last_index_most or entry_term <> term)
  )
)
select
  broker_group, node, seq, incarnation, t, event, term, index, entry_term, problems,
  committed_before, last_index
from judged
where size(problems) > 0
