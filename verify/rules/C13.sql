-- C13: filter ignored
-- promise: G8
-- needs: ops, log
-- applies: select (select count(*) from run_groups where of_some_tags) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f in ('deliver', 'poll', 'pop')) > 0
-- examined: select coalesce(sum(messages), 0) from op_counts
--   where f in ('poll', 'deliver', 'pop') and type = 'ok'
-- nothing: no operation read anything
-- holds: Groups that filter were given every message that they wanted, and no other.
-- rule: A group with tags was never given, by an operation of any type, a committed message of a
--   drained queue of its topics whose tag has the hash of one of them; or it was given one whose tag
--   has another hash. What stands below the offset of a reset of the queue for the group it need not
--   be given.
-- source: RocketMQ ExpressionMessageFilter, FilterAPI
with filters as (
  select g.client_group, g.of_all_topics, t.tag_hash
  from run_groups g
  join run_group_tags t on g.client_group = t.client_group
  where g.of_some_tags
),
tagged as (
  select
    r.broker_group, r.topic, r.queue, r.offset, r.tag_hash, min(r.value) as value,
    bool_or(r.is_visible) as on_user_topic
  from records r
  where r.kind in ('message', 'final') and r.tag_hash is not null
  group by r.broker_group, r.topic, r.queue, r.offset, r.tag_hash
),
given as (
  select
    r.client_group, r.broker_group, r.topic, r.queue, r.offset, min(r.op) as op,
    min(r.value) as value
  from reads r
  join run_groups g on r.client_group = g.client_group and g.of_some_tags
  where r.offset is not null and r.on_user_topic
  group by r.client_group, r.broker_group, r.topic, r.queue, r.offset
),
wanted as (
  select f.client_group, m.broker_group, m.topic, m.queue, m.offset, m.value
  from tagged m
  join filters f on m.tag_hash = f.tag_hash
  left join run_group_topics t on f.client_group = t.client_group and m.topic = t.topic
  join queues q on m.broker_group = q.broker_group and m.topic = q.topic and m.queue = q.queue
  where q.was_drained and m.offset >= q.floor and m.offset < q.max_offset
    -- A group that lists no topics reads all that users made.
    and (t.topic is not null or (f.of_all_topics and m.on_user_topic))
)
select
  w.client_group, w.broker_group, w.topic, w.queue, w.offset, w.value,
  'wanted and never given' as problem, cast(null as bigint) as op
from wanted w
left anti join given g
  on w.client_group = g.client_group and w.broker_group = g.broker_group and w.topic = g.topic
  and w.queue = g.queue and w.offset = g.offset
-- A message that a member hides the place of (a retry) was given all the same.
left anti join (
  select distinct r.client_group, r.value
  from reads r
  where not coalesce(r.on_user_topic, false) and r.value is not null
) v on w.client_group = v.client_group and w.value = v.value
left anti join reset_spans s
  on w.client_group = s.client_group
  and w.broker_group = s.broker_group and w.topic = s.topic and w.queue = s.queue
  and coalesce(w.offset < s.offset, true)
union all
select
  g.client_group, g.broker_group, g.topic, g.queue, g.offset, g.value, 'given and not wanted', g.op
from given g
join tagged m
  on g.broker_group = m.broker_group and g.topic = m.topic and g.queue = m.queue
  and g.offset = m.offset
left anti join filters f on g.client_group = f.client_group and m.tag_hash = f.tag_hash
