-- R9: committed before it was durable
-- promise: G1
-- needs: raft
-- reaches: yes
-- applies: select (select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--   or (select count(distinct event) = 2 from event_counts where event in ('commit', 'fsync'))
-- examined: select coalesce(sum(events), 0) from event_counts where event = 'commit'
-- nothing: no commit was traced
-- holds: What was committed was on a majority of disks.
-- rule: A leader's commit that no quorum of its configuration had made durable, and a start that
--   found less than an fsync had told since the last truncation or install. A voter whose durable
--   log reaches the index may hold other entries there: it counts only if it has told an entry of
--   the committed one's term, or of a later one, by then. A term has one leader and so one log, and
--   whoever goes on to a later term without the entry is R7's. Where the answer of a voter is
--   missing, because its trace begins later, it may have been yes. A start at term 0 of a
--   node whose store a fault had replaced (R3) is that of a new member, which has told nothing yet.
-- source: etcd's CommittedIsDurable; Raft, 5.3 and 5.4.2
with asked as (
  select
    broker_group, leader, seq, count(*) as voters,
    count_if(durable >= index and last_term >= coalesce(entry_term, cast(0 as bigint))) as holders,
    count_if(durable is null) as silent
  from durability
  group by broker_group, leader, seq
),
short as (
  select broker_group, leader, seq, holders + silent >= voters div 2 + 1 as is_doubt
  from asked
  where holders < voters div 2 + 1
),
answers as (
  select
    s.broker_group, s.leader, s.seq, s.is_doubt,
    array_sort(collect_set(struct(d.node, d.durable, d.last_term))) as voters,
    array_join(array_sort(collect_set(case when d.durable is null then d.node end)), ' ') as silent
  from short s
  join durability d on s.broker_group = d.broker_group and s.leader = d.leader and s.seq = d.seq
  group by s.broker_group, s.leader, s.seq, s.is_doubt
),
-- A start that finds less than an fsync had told may follow a truncation: only its node is looked at.
shrunk as (
  select distinct f.broker_group, f.node
  from raft f
  join raft s on f.broker_group <=> s.broker_group and f.node <=> s.node
  where f.event = 'fsync' and s.event = 'start' and f.index > s.index
    and coalesce(f.seq <= s.seq, true)
),
log_events as (
  select
    r.broker_group, r.node, r.incarnation, r.seq, r.t, r.event, r.term, r.index, r.entry_term,
    max(case
      when r.event in ('truncate', 'install')
        or (r.event = 'start' and r.term = 0 and r.t >= n.t_from) then r.seq
    end) over (
      partition by r.broker_group, r.node order by r.seq
      rows between unbounded preceding and current row
    ) as epoch
  from raft r
  left semi join shrunk h on r.broker_group <=> h.broker_group and r.node <=> h.node
  left join renewed_nodes n on concat(r.broker_group, '-', r.node) = n.target
  where r.event in ('fsync', 'start', 'truncate', 'install')
),
synced as (
  select
    *,
    max(case when event = 'fsync' then index end) over (
      partition by broker_group, node, epoch order by seq
      rows between unbounded preceding and current row
    ) as durable
  from log_events
)
select
  a.broker_group, a.leader as node, a.seq, c.incarnation, c.t, c.event, c.term, c.index,
  c.entry_term, a.voters,
  case when a.is_doubt then concat('no fsync or start is told by then by ', a.silent) end as reason
from answers a
join turning_points c on a.broker_group = c.broker_group and a.leader = c.node and a.seq = c.seq
union all
select
  t.broker_group, t.node, t.seq, t.incarnation, t.t, t.event, t.term, t.index, t.entry_term, null,
  concat('the configuration of ', t.node, ' is not told')
from turning_points t
left join raft c
  on t.broker_group = c.broker_group and t.node = c.node and t.config_seq = c.seq
  and c.event in ('start', 'config')
where t.event = 'commit' and t.was_leader and coalesce(size(c.voters), 0) < 1
union all
select
  broker_group, node, seq, incarnation, t, event, term, index, entry_term,
  array(struct(node, durable, cast(null as bigint) as last_term)), null
from synced
where event = 'start' and index < durable
