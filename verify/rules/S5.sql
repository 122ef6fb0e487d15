-- S5: consumer offset rewound
-- promise: G5
-- needs: ops
-- wants: log
-- applies: select (select count(*) from run_groups) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'fetch_offset') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts
--   where f in ('fetch_offset', 'commit_offset') and type = 'ok'
-- nothing: no offset was fetched or committed
-- holds: Consumer offsets are never lost or turned back.
-- rule: A group's stored offset is a register. A fetch answers an offset whose commit was invoked
--   before the fetch ended and did not end before the invoke of another that was acknowledged before
--   the fetch's invoke, each by more than the clocks may differ; nothing only where none was
--   acknowledged before. What the committed logs
--   store was written by some commit, and last by one that no later acknowledged one had overwritten.
--   Queues in which the group was reset are left out, fetches that do not tell their queue, and what a group fetches that may have been
--   deleted with its offsets (M17). A topic's deletion takes the offsets that were stored before it.
-- source: RocketMQ issue 3210
with settings as (
  select coalesce(max(clock_error_ns), cast(0 as bigint)) as error_ns from run_settings
),
cleaned as (
  select distinct client_group, broker_group
  from ops
  where f = 'delete_group' and type <> 'fail' and decision = 'clean'
),
fetches as (
  select
    o.client_group, o.broker_group, o.topic, o.queue, o.offset, o.op, o.process, o.node, o.t_invoke,
    o.t_complete
  from ops o left semi join run_groups g on o.client_group = g.client_group
  left anti join group_resets r
    on o.client_group = r.client_group and o.broker_group = r.broker_group
    and o.topic = r.topic and o.queue = r.queue
  left anti join cleaned c on o.client_group = c.client_group and o.broker_group = c.broker_group
  where o.f = 'fetch_offset' and o.type = 'ok'
    and o.broker_group is not null and o.topic is not null and o.queue is not null
),
-- Commits that had been acknowledged before a fetch began: the latest of their invokes.
before_fetches as (
  select op, at_fetch, overwritten_at
  from (
    select
      op, at_fetch,
      max(begun) over (
        partition by client_group, broker_group, topic, queue order by at, turn, op
        rows between unbounded preceding and 1 preceding
      ) as overwritten_at
    from (
      select
        client_group, broker_group, topic, queue, op, t_end + error_ns as at, 1 as turn,
        t_invoke as begun, false as at_fetch
      from offset_commits cross join settings
      where is_acked
      union all
      select client_group, broker_group, topic, queue, op, t_invoke, 0, null, true from fetches
    ) a
  ) b
  where at_fetch
),
-- Commits of the very offset that began before a fetch ended: the latest of their ends.
same_offsets as (
  select op, ended
  from (
    select
      op, at_fetch,
      max(t_end) over (
        partition by client_group, broker_group, topic, queue, offset order by at, turn, op
        rows between unbounded preceding and 1 preceding
      ) as ended
    from (
      select client_group, broker_group, topic, queue, offset, op, t_invoke as at, 0 as turn, t_end, false as at_fetch
      from offset_commits
      union all
      select client_group, broker_group, topic, queue, offset, op, t_complete + error_ns, 1, null, true
      from fetches cross join settings
      where offset is not null
    ) a
  ) b
  where at_fetch
),
-- Fetches that may rightly have found nothing: the topic's deletion took what had been acknowledged.
forgotten as (
  select distinct f.op
  from fetches f
  join before_fetches b on f.op = b.op
  join topic_changes c on f.broker_group = c.broker_group and f.topic = c.topic
  cross join settings e
  where c.f = 'delete_topic' and c.t_invoke <= f.t_complete + e.error_ns
    and c.t_end >= b.overwritten_at - e.error_ns
),
answers as (
  select
    f.*, b.overwritten_at, s.ended,
    case
      when f.offset is null then
        case
          when b.overwritten_at is not null and d.op is null
            then 'nothing was stored, though a commit was acknowledged'
        end
      when s.ended is null then 'nobody had committed that offset'
      when s.ended < b.overwritten_at - e.error_ns then 'a later commit had been acknowledged'
    end as problem
  from fetches f
  join before_fetches b on f.op = b.op
  left join same_offsets s on f.op = s.op
  left join forgotten d on f.op = d.op
  cross join settings e
),
stored_offsets as (
  select
    l.client_group, l.broker_group, l.topic, l.queue, l.queue_offset as offset,
    max(struct(l.index as index, l.slot as slot)) as at,
    max_by(struct(l.index as index, l.slot as slot, l.node as node), struct(l.index, l.slot, l.node)) as row
  from log l left semi join run_groups g on l.client_group = g.client_group
  left anti join group_resets r
    on l.client_group = r.client_group and l.broker_group = r.broker_group
    and l.topic = r.topic and l.queue = r.queue
  where l.committed and l.kind = 'offset'
  group by l.client_group, l.broker_group, l.topic, l.queue, l.queue_offset
),
lasts as (
  select client_group, broker_group, topic, queue, max(at) as last_at
  from stored_offsets
  group by client_group, broker_group, topic, queue
),
by_offset as (
  select client_group, broker_group, topic, queue, offset, max(t_end) as ended
  from offset_commits
  group by client_group, broker_group, topic, queue, offset
),
by_queue as (
  select
    client_group, broker_group, topic, queue, max(case when is_acked then t_invoke end) as overwritten_at
  from offset_commits
  group by client_group, broker_group, topic, queue
),
rows_judged as (
  select
    s.client_group, s.broker_group, s.topic, s.queue, s.offset, s.at, s.row, o.ended, q.overwritten_at,
    case
      when o.ended is null then 'nobody committed the offset that the log stores'
      when s.at = l.last_at and o.ended < q.overwritten_at - e.error_ns
        then 'the offset stored last had been overwritten by an acknowledged commit'
    end as problem
  from stored_offsets s
  join lasts l
    on s.client_group = l.client_group and s.broker_group = l.broker_group and s.topic = l.topic
    and s.queue = l.queue
  left join by_offset o
    on s.client_group = o.client_group and s.broker_group = o.broker_group and s.topic = o.topic
    and s.queue = o.queue and s.offset = o.offset
  left join by_queue q
    on s.client_group = q.client_group and s.broker_group = q.broker_group and s.topic = q.topic
    and s.queue = q.queue
  cross join settings e
),
never_stored as (
  select q.client_group, q.broker_group, q.topic, q.queue, q.overwritten_at
  from by_queue q
  join first_index f on q.broker_group = f.broker_group and f.first_index = 1
  left anti join lasts l
    on q.client_group = l.client_group and q.broker_group = l.broker_group and q.topic = l.topic
    and q.queue = l.queue
  left anti join group_resets g
    on q.client_group = g.client_group and q.broker_group = g.broker_group
    and q.topic = g.topic and q.queue = g.queue
  cross join run_settings r
  -- Other systems need not store offsets in the log that they replicate.
  where q.overwritten_at is not null and r.own_system
)
select
  client_group, broker_group, topic, queue, op, cast(null as bigint) as index, problem, offset,
  process, node, t_invoke, t_complete, overwritten_at,
  nullif(ended, cast(9223372036854775807 as bigint)) as ended
from answers
where problem is not null
union all
select
  client_group, broker_group, topic, queue, null, at.index, problem, offset, null, row.node, null, null,
  overwritten_at, nullif(ended, cast(9223372036854775807 as bigint))
from rows_judged
where problem is not null
union all
select
  client_group, broker_group, topic, queue, null, null,
  'a commit was acknowledged, and no log stores any offset', null, null, null, null, null,
  overwritten_at, null
from never_stored
