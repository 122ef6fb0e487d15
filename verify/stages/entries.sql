-- One row per entry, which is what stands at an index with a term and a chain: whether any trace or
-- log tells it as committed, any trace as applied, any log has it; and when a trace first told its
-- append, and first a commit or install at its index.
-- parts: index
with told as (
  select
    broker_group, index, entry_term, chain, event in ('commit', 'apply', 'install') as is_committed,
    event in ('apply', 'install') as is_applied, false as is_logged,
    case when event = 'append' then t end as t_append,
    case when event in ('commit', 'install') then t end as t_commit
  from raft
  where event in ('append', 'commit', 'apply', 'start', 'install')
  union all
  select
    broker_group, index, term, chain, coalesce(committed, false), false, true,
    cast(null as bigint), cast(null as bigint)
  from log
)
select
  broker_group, index, entry_term, chain,
  bool_or(is_committed) as is_committed, bool_or(is_applied) as is_applied,
  bool_or(is_logged) as is_logged, min(t_append) as t_appended, min(t_commit) as t_committed
from told
where index > 0 and entry_term is not null and chain is not null
group by broker_group, index, entry_term, chain
