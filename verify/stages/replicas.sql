-- One row per replica that has a log: the first index in it, and the last that is committed.
select
  broker_group, node,
  min(case when index > 0 then index end) as first_index,
  coalesce(max(case when committed then index end), 0) as last_committed
from log
group by broker_group, node
