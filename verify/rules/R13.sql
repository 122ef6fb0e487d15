-- R13: configuration changes wrongly
-- promise: G1
-- needs: raft
-- reaches: yes
-- applies: select (select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--   or (select count(*) > 0 from event_counts where event = 'config')
-- examined: select coalesce(sum(events), 0) from event_counts where event in ('config', 'start')
-- nothing: no configuration was traced
-- holds: Members changed one at a time, each change after the one before it was committed.
-- rule: A configuration that a leader appends while the one before it is not committed, or before
--   it has committed an entry of its own term; and one that differs from the one in force before it
--   in more than one voter. Appended is what stands above the configuration told before, above the
--   log that a start found and the snapshot that an install brought. The first leader may write
--   down at once the voters that all began with. What nodes were told in one batch, of which they
--   tell the last, is not compared; nor is what a node knew that knew nobody.
-- source: Ongaro's dissertation, 4.1, and its correction on single-server changes
with configs as (
  select
    broker_group, node, incarnation, seq, event, index, voters,
    lag(event) over (partition by broker_group, node, incarnation order by seq) as event_before,
    lag(index) over (partition by broker_group, node, incarnation order by seq) as index_before,
    lag(voters) over (partition by broker_group, node, incarnation order by seq) as voters_before
  from raft
  where event in ('start', 'config')
),
changes as (
  select
    c.broker_group, c.node, c.seq, c.incarnation, t.t, t.term, c.index, c.voters, c.event_before,
    c.index_before, c.voters_before, t.was_leader, t.committed, t.term_committed,
    c.index > coalesce(c.index_before, cast(-1 as bigint))
      and c.index > coalesce(t.installed, cast(-1 as bigint)) as is_appended,
    c.index <= coalesce(t.installed, cast(-1 as bigint)) as is_jump
  from configs c
  join turning_points t on c.broker_group = t.broker_group and c.node = t.node and c.seq = t.seq
  where c.event = 'config' and c.event_before is not null
),
skipping as (
  select c.broker_group, c.node, c.seq
  from changes c join configs o on c.broker_group = o.broker_group
  where o.event = 'config' and o.index > least(c.index, c.index_before)
    and o.index < greatest(c.index, c.index_before)
  group by c.broker_group, c.node, c.seq
),
judged as (
  select
    c.broker_group, c.node, c.seq, c.incarnation, c.t, c.term, c.index, c.voters,
    c.index_before, c.voters_before, c.committed,
    filter(
      array(
        case when c.was_leader and c.is_appended and c.event_before = 'config'
          and c.index_before > coalesce(c.committed, cast(0 as bigint))
          then 'the one before it was not committed' end,
        case when c.was_leader and c.is_appended
          and not (c.event_before = 'start' and array_sort(c.voters) = array_sort(c.voters_before))
          and coalesce(c.term_committed, cast(-1 as bigint)) < c.term
          then 'its leader had committed nothing in its term' end,
        case when not c.is_jump and s.seq is null
          and size(c.voters_before) > 0 and size(c.voters) > 0
          and size(filter(c.voters, v -> not array_contains(c.voters_before, v)))
            + size(filter(c.voters_before, v -> not array_contains(c.voters, v))) > 1
          then 'more than one voter differs' end
      ),
      problem -> problem is not null
    ) as problems
  from changes c left join skipping s
    on c.broker_group = s.broker_group and c.node = s.node and c.seq = s.seq
)
select
  broker_group, node, seq, incarnation, t, term, index, voters, index_before, voters_before,
  committed, problems
from judged
where size(problems) > 0
