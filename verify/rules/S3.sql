-- S3: truncated entry came back
-- promise: G1
-- needs: raft
-- wants: log
-- reaches: yes
-- applies: select (select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--   or (select coalesce(sum(events), 0) from event_counts where event = 'truncate') > 0
-- examined: select coalesce(sum(events), 0) from event_counts where event in ('append', 'truncate', 'start')
-- nothing: no append was traced
-- holds: What was dropped from a log did not come back.
-- rule: An entry that a node had truncated, and was not given again since, is what a later start of
--   it finds last, or is in its exported log. A start that finds more than the trace told is legal: a
--   kill came between storing and telling.
-- source: RocketMQ issue 10666
with cuts as (
  select broker_group, node, seq, index from raft where event = 'truncate'
),
-- Entries that a truncation dropped behind some telling of them: few, of the many that a trace tells.
cut_entries as (
  select distinct r.broker_group, r.node, r.index, r.entry_term, r.chain
  from raft r left semi join cuts c
    on r.broker_group = c.broker_group and r.node = c.node
    and r.seq < c.seq and r.index >= c.index
  where r.event in ('append', 'start') and r.entry_term is not null and r.chain is not null
),
tellings as (
  select r.broker_group, r.node, r.event, r.incarnation, r.seq, r.t, r.index, r.entry_term, r.chain
  from raft r left semi join cut_entries e
    on r.broker_group = e.broker_group and r.node = e.node and r.index = e.index
    and r.entry_term = e.entry_term and r.chain = e.chain
  where r.event in ('append', 'start')
),
-- What starts found that had been told before, and was truncated in between.
found_again as (
  select
    s.broker_group, s.node, s.seq, s.incarnation, s.t, s.index, s.entry_term, s.chain,
    max(a.seq) as told_seq
  from tellings s
  join tellings a
    on s.broker_group = a.broker_group and s.node = a.node and s.index = a.index
    and s.entry_term = a.entry_term and s.chain = a.chain
  where s.event = 'start' and a.seq < s.seq
  group by s.broker_group, s.node, s.seq, s.incarnation, s.t, s.index, s.entry_term, s.chain
),
came_back as (
  select
    f.broker_group, f.node, f.seq, f.incarnation, f.t, f.index, f.entry_term, f.chain, f.told_seq,
    min(c.seq) as cut_seq
  from found_again f join cuts c on f.broker_group = c.broker_group and f.node = c.node
  where c.seq > f.told_seq and c.seq < f.seq and c.index <= f.index
  group by
    f.broker_group, f.node, f.seq, f.incarnation, f.t, f.index, f.entry_term, f.chain, f.told_seq
),
-- Entries whose last telling is followed by a truncation that dropped them.
last_tellings as (
  select broker_group, node, index, entry_term, chain, max(seq) as told_seq
  from tellings
  group by broker_group, node, index, entry_term, chain
),
dropped as (
  select l.broker_group, l.node, l.index, l.entry_term, l.chain, l.told_seq
  from last_tellings l left semi join cuts c
    on l.broker_group = c.broker_group and l.node = c.node
    and l.told_seq < c.seq and l.index >= c.index
),
in_logs as (
  select d.broker_group, d.node, d.index, d.entry_term, d.chain, d.told_seq
  from dropped d
  left semi join log l
    on d.broker_group = l.broker_group and d.node = l.node and d.index = l.index
    and d.entry_term = l.term and d.chain = l.chain
),
in_logs_cut as (
  select i.*, c.cut_seq
  from in_logs i
  join (
    select d.broker_group, d.node, d.index, d.entry_term, d.chain, min(c.seq) as cut_seq
    from in_logs d join cuts c on d.broker_group = c.broker_group and d.node = c.node
    where c.seq > d.told_seq and c.index <= d.index
    group by d.broker_group, d.node, d.index, d.entry_term, d.chain
  ) c
    on i.broker_group = c.broker_group and i.node = c.node and i.index = c.index
    and i.entry_term = c.entry_term and i.chain = c.chain
),
-- A later start found more behind it, and nothing was told of that index in between.
found_more as (
  select i.broker_group, i.node, i.index, i.entry_term, i.chain
  from in_logs_cut i
  join raft s on i.broker_group = s.broker_group and i.node = s.node and s.event = 'start'
  left anti join came_back b
    on s.broker_group = b.broker_group and s.node = b.node and s.seq = b.seq
  left join (
    select a.broker_group, a.node, a.index, max(a.seq) as told_seq
    from raft a left semi join in_logs_cut d
      on a.broker_group = d.broker_group and a.node = d.node and a.index = d.index
    where a.event in ('append', 'start') and a.entry_term is not null and a.chain is not null
    group by a.broker_group, a.node, a.index
  ) a on i.broker_group = a.broker_group and i.node = a.node and i.index = a.index
  where s.seq > i.cut_seq and s.index > i.index and a.told_seq < i.cut_seq
)
select
  broker_group, node, index, entry_term, chain, seq as start_seq, 'found at a start' as problem, told_seq,
  cut_seq, incarnation, t
from came_back
union all
select
  i.broker_group, i.node, i.index, i.entry_term, i.chain, null, 'in the exported log', i.told_seq, i.cut_seq,
  null, null
from in_logs_cut i
left anti join found_more f
  on i.broker_group = f.broker_group and i.node = f.node and i.index = f.index
  and i.entry_term = f.entry_term and i.chain = f.chain
