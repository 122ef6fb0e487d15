-- C6: refused and lost
-- promise: G1
-- needs: ops
-- wants: log, raft
-- applies: select (select count(*) from run_groups where retries_max is not null) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'deliver') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'deliver'
-- nothing: nothing was delivered
-- holds: What a listener refused came again until it was consumed, or stands among the dead letters;
--   nothing that was acknowledged was withheld from it.
-- rule: A message that a group with retries_max (P3 judges those that pop) was delivered, or that was
--   acknowledged in a drained queue of its topics (but of a group with tags: C13), that the group
--   never consumed and that does not stand in its dead letters.
--   A doubt where its last delivery ended less than fifteen seconds before the drain did, or where a
--   run without a log never read dead letters. Left out where it ended before the first entry that
--   logs which retention cut still have: its dead letter may be gone; and what stands below the
--   offset of a reset of its queue for the group.
-- source: RocketMQ CONSUMER_SEND_MSG_BACK
with delivered as (
  select
    client_group, value, max(op) as last_op, max(coalesce(t_complete, t_invoke)) as t_last,
    max(reconsume) as reconsume, bool_or(not is_refused) as was_consumed, count(*) as deliveries
  from refusals
  group by client_group, value
),
owed_groups as (
  select g.client_group, g.of_all_topics
  from run_groups g
  left anti join (select distinct client_group from ops where f = 'pop') p
    on g.client_group = p.client_group
  where g.retries_max is not null and not g.of_some_tags
),
read_topics as (
  select g.client_group, t.topic
  from owed_groups g join run_group_topics t on g.client_group = t.client_group
  union all
  -- A group that lists no topics reads all that users made.
  select g.client_group, u.topic
  from owed_groups g
  cross join (select distinct topic from acked_places where on_user_topic) u
  where g.of_all_topics
),
acknowledged as (
  select t.client_group, a.value, min(a.op) as acked_op
  from acked_places a
  join read_topics t on a.topic = t.topic
  join queues q
    on a.broker_group = q.broker_group and a.topic = q.topic and a.queue = q.queue
  where q.was_drained and a.offset >= q.floor and a.offset < q.max_offset
  group by t.client_group, a.value
),
owed as (
  select
    coalesce(d.client_group, a.client_group) as client_group,
    coalesce(d.value, a.value) as value,
    a.acked_op, d.last_op, d.t_last, d.reconsume, coalesce(d.deliveries, 0) as deliveries
  from delivered d
  full outer join acknowledged a on d.client_group = a.client_group and d.value = a.value
  where not coalesce(d.was_consumed, false)
),
begun as (
  select count(*) > 0 as was_cut, max(p.t_append) as t_append
  from first_index f
  left join first_appends p on f.broker_group = p.broker_group and f.first_index = p.index
  where f.first_index > 1
),
-- What a group may have been sent over.
passed_over as (
  select s.client_group, p.value
  from reset_spans s
  join (
    select value, broker_group, topic, queue, offset from acked_places
    union all
    select value, broker_group, topic, queue, offset from refusals where offset is not null
  ) p
    on s.broker_group = p.broker_group and s.topic = p.topic and s.queue = p.queue
    and coalesce(p.offset < s.offset, true)
),
dead_reads as (
  select count(*) as reads from reads where startswith(topic, '%DLQ%')
)
select
  case when o.deliveries = 0 then 'never delivered' else 'refused, and never came again' end as problem,
  o.client_group, o.value, o.acked_op, o.last_op, o.t_last, o.deliveries, o.reconsume,
  case
    when o.deliveries = 0 then null
    when o.t_last > s.drain_to - 15000000000 then 'its retry may have been still to come'
    when not s.has_log and n.reads = 0 then 'neither a log nor a read shows dead letters'
  end as reason
from owed o
left anti join dead_letters d on o.client_group = d.client_group and o.value = d.value
-- Nor one whose reader was not told its place.
left anti join reads r on r.topic = concat('%DLQ%', o.client_group) and r.value = o.value
left anti join passed_over p on o.client_group = p.client_group and o.value = p.value
cross join run_settings s
cross join dead_reads n
cross join begun b
where o.deliveries = 0 or not coalesce(o.t_last < b.t_append, b.was_cut)
