-- S9: slave's log is not its master's
-- promise: G3
-- needs: log
-- engines: async, sync
-- examined: select coalesce(sum(records), 0) from record_counts
-- nothing: no replica has an entry
-- holds: Every slave's log was a beginning of its master's.
-- rule: At the stop a replica that had come back and caught up (one that is not in run.json's
--   left_behind) has an entry that is not committed, which is one that the log of its group's master
--   does not have there: the master had to cut it off. What can't be read is not asked here.
-- source: decision 28
select
  l.broker_group, l.node, min(l.index) as index, max(l.index) as last_index,
  count(distinct l.index) as entries
from log l
left anti join run_left_behind b on l.broker_group = b.broker_group and l.node = b.node
where not l.committed and l.kind <> 'damaged'
group by l.broker_group, l.node
