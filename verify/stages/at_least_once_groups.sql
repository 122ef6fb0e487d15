-- The groups that are to read all of their topics (at_least_once), with the `bit` that tells each
-- in a sum of them. Groups behind the 62nd share one, `is_told` false: no value tells it.
-- kept: no
select
  client_group, of_all_topics, place < 62 as is_told,
  shiftleft(cast(1 as bigint), cast(least(place, 62) as int)) as bit
from (
  select
    client_group, of_all_topics,
    row_number() over (
      order by client_group rows between unbounded preceding and current row
    ) - 1 as place
  from run_groups
  where at_least_once
) numbered
