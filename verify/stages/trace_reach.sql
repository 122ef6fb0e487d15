-- Replicas whose trace does not reach all that they committed: an entry of the exported log that no
-- append of the node told (with its term and chain: else nothing of it can be compared), and that no
-- start or install covered. What such a trace shows of entries proves nothing.
with covered as (
  select broker_group, node, max(index) as covered_to
  from raft
  where event in ('start', 'install')
  group by broker_group, node
),
untold as (
  select distinct l.broker_group, l.node, l.index
  from log l
  left join covered c on l.broker_group = c.broker_group and l.node = c.node
  left anti join raft r
    on l.broker_group = r.broker_group and l.node = r.node and l.index = r.index
    and r.event = 'append' and r.entry_term is not null and r.chain is not null
  where l.committed and l.index > coalesce(c.covered_to, cast(0 as bigint))
)
select broker_group, node, min(index) as index, count(*) as entries
from untold
group by broker_group, node
