-- M2: topic is not what its last change made it
-- promise: G5
-- needs: ops
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'route')
--   and (select coalesce(sum(ops), 0) > 0 from op_counts where f in ('create_topic', 'delete_topic'))
-- examined: select coalesce(sum(ops), 0) from op_counts
--   where f in ('create_topic', 'delete_topic') and type = 'ok'
-- nothing: no change of a topic was acknowledged
-- holds: Topics are made, changed and deleted for good, whoever leads.
-- rule: A leader that had led before and after, asked in the drain, has other queues or another
--   permission of a topic than its last change made, which was acknowledged before, or has it though
--   it was deleted. Only where no change of another kind may have come in between: every other one
--   ended before that last one was invoked, and where it was a deletion, every send to the topic, too,
--   since a send may make its topic anew.
-- source: promise G5; RocketMQ TopicConfigManager
with asked as (
  select v.*
  from topic_views v
  cross join run_settings s
  left anti join run_left_behind b on v.broker_group = b.broker_group
  where v.by_owner and v.t_invoke >= s.drain_from
),
lasts as (
  select a.op, max(c.t_invoke) as t_changed, max_by(c.op, struct(c.t_invoke, c.op)) as change_op
  from asked a
  join topic_changes c on a.broker_group = c.broker_group and a.topic = c.topic
  where c.is_acked and c.t_end < a.t_invoke
  group by a.op
),
unsure as (
  select distinct l.op
  from lasts l
  join asked a on l.op = a.op
  join topic_changes c on a.broker_group = c.broker_group and a.topic = c.topic
  where c.op <> l.change_op and c.t_end >= l.t_changed and c.t_invoke < a.t_complete
  union
  -- A send may make its topic anew.
  select l.op
  from lasts l
  join asked a on l.op = a.op
  join ops o on a.topic = o.topic and a.broker_group = coalesce(o.broker_group, a.broker_group)
  join topic_changes c on l.change_op = c.op
  where c.f = 'delete_topic' and o.f in ('send', 'half', 'delay', 'request')
    and o.t_invoke < a.t_complete
    and case when o.type = 'info' then cast(9223372036854775807 as bigint) else o.t_complete end >= l.t_changed
),
compared as (
  select
    a.broker_group, a.topic, a.op, a.node, l.change_op, c.f as change, c.queues as wanted_queues,
    c.perm as wanted_perm, a.queues, a.perm,
    case
      when c.f = 'delete_topic' and size(a.queues) > 0 then 'it is there though it was deleted'
      when c.f = 'create_topic' and size(a.queues) = 0 then 'it is gone though it was made'
      when c.f = 'create_topic' and a.queues <> c.queues then 'it has other queues'
      when c.f = 'create_topic' and a.perm <> c.perm then 'it has another permission'
    end as problem
  from asked a
  join lasts l on a.op = l.op
  left anti join unsure u on a.op = u.op
  join topic_changes c on l.change_op = c.op
)
select
  broker_group, topic, change_op, change, problem, min(op) as route_op,
  min_by(struct(node, queues, perm), op) as has, max(wanted_perm) as wanted_perm
from compared
where problem is not null
group by broker_group, topic, change_op, change, problem
