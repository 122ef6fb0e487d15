-- S4: commit index beyond the log
-- promise: G1
-- needs: raft
-- wants: log
-- reaches: yes
-- applies: select (select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--   or (select coalesce(sum(events), 0) from event_counts where event = 'commit') > 0
-- examined: select coalesce(sum(events), 0) from event_counts where event in ('commit', 'truncate')
-- nothing: no commit was traced
-- holds: No log was cut, or ends, below what was committed.
-- rule: A truncation at or below the node's commit index; a commit beyond the end of its log; or an
--   exported log that ends below the last commit that its node told since its last start.
-- source: DLedger issue 316
with last_starts as (
  select broker_group, node, max(seq) as seq
  from raft
  where event = 'start'
  group by broker_group, node
),
last_commits as (
  select c.broker_group, c.node, max_by(c.index, c.seq) as index, max(c.seq) as seq
  from raft c left join last_starts s on c.broker_group = s.broker_group and c.node = s.node
  where c.event = 'commit' and c.seq > coalesce(s.seq, cast(-1 as bigint))
  group by c.broker_group, c.node
),
log_ends as (
  select broker_group, node, max(index) as log_end
  from (
    select broker_group, node, index from log where kind <> 'damaged'
    union all
    -- A log that an install has begun anew may hold nothing yet.
    select r.broker_group, r.node, r.index
    from raft r left semi join replicas p on r.broker_group = p.broker_group and r.node = p.node
    where r.event = 'install'
  ) ends
  group by broker_group, node
)
select
  broker_group, node, seq, event,
  case
    when event = 'truncate' then 'the log is cut below the commit index'
    else 'committed beyond the end of the log'
  end as problem,
  index, committed as commit_index, last_index_most as log_end, incarnation, t, term
from turning_points
where (event = 'truncate' and index <= committed) or (event = 'commit' and index > last_index_most)
union all
select
  c.broker_group, c.node, c.seq, 'commit', 'the exported log ends below the last commit', c.index, c.index,
  e.log_end, null, null, null
from last_commits c join log_ends e on c.broker_group = e.broker_group and c.node = e.node
where e.log_end < c.index
