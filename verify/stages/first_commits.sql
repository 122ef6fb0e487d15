-- When the entry at an index of the committed logs was first told committed by any node of its
-- group: by a commit or an install there, or at an index above it whose entry stands in some log
-- (where it is told without a chain, any), so that both are of one chain. Null where none was told.
with told as (
  select broker_group, index, t_committed as t, false as is_owed
  from entries
  where is_logged and t_committed is not null
  union all
  select broker_group, index, t, false
  from raft
  where event in ('commit', 'install') and index > 0 and (chain is null or entry_term is null)
  union all
  select broker_group, index, cast(null as bigint), true
  from log
  where committed
),
points as (
  select broker_group, index, min(t) as t, bool_or(is_owed) as is_owed
  from told
  group by broker_group, index
),
carried as (
  select
    broker_group, index, is_owed,
    min(t) over (
      partition by broker_group order by index desc
      rows between unbounded preceding and current row
    ) as t_committed
  from points
)
select broker_group, index, t_committed from carried where is_owed
