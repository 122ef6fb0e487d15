-- Every telling of an entry where what is told of one index differs in term or chain: by whom
-- (`source`: the event, or log), and whether it tells the entry as committed or as applied.
with disputed as (
  select broker_group, index from entries group by broker_group, index having count(*) > 1
)
select
  r.broker_group, r.index, r.entry_term, r.chain, r.node, r.event as source, r.seq,
  r.event in ('commit', 'apply', 'install') as is_committed,
  r.event in ('apply', 'install') as is_applied
from raft r join disputed d on r.broker_group = d.broker_group and r.index = d.index
where r.event in ('append', 'commit', 'apply', 'start', 'install')
  and r.entry_term is not null and r.chain is not null
union all
select distinct
  l.broker_group, l.index, l.term, l.chain, l.node, 'log', cast(-1 as bigint),
  coalesce(l.committed, false), false
from log l join disputed d on l.broker_group = d.broker_group and l.index = d.index
where l.term is not null and l.chain is not null
