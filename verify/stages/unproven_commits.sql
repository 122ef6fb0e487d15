-- Commits of leaders of which it takes more than a look to tell whether a majority of the voters had
-- the entry durable: nearly none, so that R9 has little to weigh. Of the others it is certain: each
-- of a majority had told an fsync at that index or above, and an entry of that term, and no start,
-- truncation or install since that fsync.
with configs as (
  select broker_group, node, seq, voters from raft where event in ('start', 'config')
),
questions as (
  select
    broker_group, voter as node, at, leader, seq, index, entry_term
  from (
    select
      t.broker_group, t.node as leader, t.seq, t.t + s.error_ns as at, t.index, t.entry_term, g.voters
    from turning_points t
    join configs g on t.broker_group = g.broker_group and t.node = g.node and t.config_seq = g.seq
    cross join (
      select coalesce(max(clock_error_ns), cast(0 as bigint)) as error_ns from run_settings
    ) s
    where t.event = 'commit' and t.was_leader
  ) c lateral view explode(voters) e as voter
),
terms as (
  select broker_group, node, entry_term, min(t) as at
  from raft
  where entry_term is not null
  group by broker_group, node, entry_term
),
resets as (
  select broker_group, node, t from raft where event in ('start', 'truncate', 'install')
),
line as (
  select
    broker_group, node, index, t, 0 as turn, cast(null as bigint) as at,
    cast(null as string) as leader, cast(null as bigint) as seq, cast(null as bigint) as entry_term
  from raft
  where event = 'fsync' and index is not null
  union all
  select broker_group, node, index, null, 1, at, leader, seq, entry_term from questions
),
answers as (
  select
    *,
    min(t) over (
      partition by broker_group, node order by index desc, turn, seq
      rows between unbounded preceding and current row
    ) as t_synced
  from line
),
-- A voter that stands twice in a configuration counts twice, here as in R9.
holding as (
  select a.broker_group, a.leader, a.seq, count(*) as holders
  from answers a
  join terms e on a.broker_group = e.broker_group and a.node = e.node and a.entry_term = e.entry_term
  left anti join resets r
    on a.broker_group = r.broker_group and a.node = r.node and r.t >= a.t_synced and r.t <= a.at
  where a.turn = 1 and a.index is not null and a.t_synced <= a.at and e.at <= a.at
  group by a.broker_group, a.leader, a.seq
),
asked as (
  select broker_group, leader, seq, count(*) as voters
  from questions
  group by broker_group, leader, seq
)
select a.broker_group, a.leader, a.seq
from asked a
left join holding h
  on a.broker_group = h.broker_group and a.leader = h.leader and a.seq = h.seq
where coalesce(h.holders, cast(0 as bigint)) < a.voters div 2 + 1
