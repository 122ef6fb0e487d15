-- How far voters' logs were durable when a leader committed, for the commits in `unproven_commits`:
-- one row per commit and voter of the configuration in force at the leader, which its last start or
-- config told (learners are not asked). `seq`, `index` and `entry_term` are the commit's; `durable`:
-- how far the log of `node` was durable at that time, and as much later as the clocks may differ,
-- null where nothing tells; `last_term`: the last term of which it had told an entry by then.
--
-- Durable is what an fsync told, and what a start found: recovery keeps nothing that it does not
-- make durable. A truncation takes durability back; so does an install that replaces what the node
-- held at its index, and no install gives any: the snapshot is durable with a later fsync. A group
-- that tells of no fsync does not trace them, so that its starts prove nothing either.
--
-- What is told and what is asked of a node stand in one line, by `turn`: a question comes after what
-- was told at its time. Rows that stand at one place, questions or new terms, change nothing for
-- each other.
with configs as (
  select broker_group, node, seq, voters from raft where event in ('start', 'config')
),
commits as (
  select
    t.broker_group, t.node, t.seq, t.t + s.error_ns as at, t.index, t.entry_term, g.voters
  from turning_points t
  join configs g on t.broker_group = g.broker_group and t.node = g.node and t.config_seq = g.seq
  cross join (
    select coalesce(max(clock_error_ns), cast(0 as bigint)) as error_ns from run_settings
  ) s
  left semi join unproven_commits u
    on t.broker_group = u.broker_group and t.node = u.leader and t.seq = u.seq
  where t.event = 'commit' and t.was_leader
),
questions as (
  select broker_group, voter as node, at, node as leader, seq, index, entry_term
  from commits lateral view explode(voters) e as voter
),
tracing as (
  select distinct r.broker_group
  from raft r left semi join unproven_commits u on r.broker_group = u.broker_group
  where r.event = 'fsync'
),
installs as (
  select broker_group, node, t, seq, index, chain
  from raft r left semi join tracing g on r.broker_group = g.broker_group
  where event = 'install' and chain is not null
),
replaced as (
  select i.broker_group, i.node, i.t, i.seq, i.index, i.chain, max_by(r.chain, r.seq) as held
  from installs i
  join raft r on i.broker_group = r.broker_group and i.node = r.node and i.index = r.index
  where r.event in ('append', 'start') and r.chain is not null and r.seq < i.seq
  group by i.broker_group, i.node, i.t, i.seq, i.index, i.chain
),
terms as (
  select broker_group, node, entry_term, min(t) as at
  from raft r left semi join unproven_commits u on r.broker_group = u.broker_group
  where entry_term is not null
  group by broker_group, node, entry_term
),
line as (
  select
    r.broker_group, r.node, 2 * r.t as turn, r.seq as place,
    case when r.event <> 'truncate' then r.index end as synced,
    case when r.event = 'truncate' then r.index - 1 end as cut,
    r.event <> 'fsync' as is_anew, cast(null as bigint) as last_term,
    cast(null as string) as leader, cast(null as bigint) as seq, cast(null as bigint) as index,
    cast(null as bigint) as entry_term
  from raft r left semi join tracing g on r.broker_group = g.broker_group
  where r.event in ('fsync', 'start', 'truncate')
  union all
  select
    i.broker_group, i.node, 2 * i.t, i.seq, null, i.index - 1, true, null, null, null, null, null
  from replaced i
  where i.held <> i.chain
  union all
  select
    broker_group, node, 2 * at, cast(-1 as bigint), null, null, false, entry_term, null, null, null, null
  from terms
  union all
  select broker_group, node, 2 * at + 1, seq, null, null, false, null, leader, seq, index, entry_term
  from questions
),
numbered as (
  select
    *,
    max(case when synced is not null then place end) over so_far as sync_place,
    max(case when is_anew then place end) over so_far as epoch,
    max(last_term) over so_far as last_term_told
  from line
  window so_far as (
    partition by broker_group, node order by turn, place
    rows between unbounded preceding and current row
  )
),
-- An epoch begins wherever what was told before counts no more by itself. Places, which rise along
-- the way, stand before the index in one number, so that the greatest of all is that of the newest
-- epoch, and the least that of what followed the newest fsync: one order serves both.
weighed as (
  select
    *,
    cast(coalesce(epoch, cast(0 as bigint)) as decimal(19,0)) * cast(1000000000000000000 as decimal(19,0)) as epoch_weight,
    cast(sync_place as decimal(19,0)) * cast(1000000000000000000 as decimal(19,0)) as sync_weight
  from numbered
),
packed as (
  select
    *,
    max(epoch_weight + synced) over so_far as best,
    min(coalesce(synced, cut) - sync_weight) over so_far as least
  from weighed
  window so_far as (
    partition by broker_group, node order by turn, place
    rows between unbounded preceding and current row
  )
),
answers as (
  select
    broker_group, leader, seq, index, entry_term, node, last_term_told as last_term,
    cast(case when best >= epoch_weight then best - epoch_weight end as bigint) as most,
    cast(least + sync_weight as bigint) as kept
  from packed
  where leader is not null
)
select
  broker_group, leader, seq, index, entry_term, node, last_term,
  case when most is not null then greatest(most, coalesce(kept, most)) else kept end as durable
from answers
