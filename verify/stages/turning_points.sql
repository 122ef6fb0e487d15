-- The rows of `trace` that are worth a look: elections, votes, configurations, starts, installs and
-- truncations; a leader's commits; and appends, commits and applies that do not simply go on from
-- where their node was. The others are nearly all of a trace.
-- small parts: incarnation
select *
from trace
where event not in ('append', 'commit', 'apply')
  or (event = 'append' and was_leader and index <= last_index_least)
  or (
    event = 'commit'
    and (was_leader or index < committed or index > last_index_most or entry_term <> term)
  )
  or (
    event = 'apply'
    and (first <> applied + 1 or index > coalesce(committed, cast(-1 as bigint)))
  )
