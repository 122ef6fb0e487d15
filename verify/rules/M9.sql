-- M9: right to read a topic is not kept
-- promise: G5
-- needs: ops
-- wants: faults
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'create_topic' and type = 'ok')
--   and (select coalesce(sum(ops), 0) > 0 from op_counts where f in ('poll', 'pop'))
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'create_topic' and type = 'ok'
-- nothing: no topic was made or changed
-- holds: Nobody reads a topic that may not be read, and who may is not refused.
-- rule: A poll or pop that was answered, though the last change of the topic at its broker group,
--   acknowledged before it was invoked, had left no permission to read; or one that was refused for
--   that reason (status 16) though it had. Only of the replica that had acknowledged that change,
--   where no other change of the topic may have come in between and no fault touches the time from
--   the change to the answer, nor, of a refusal, the five seconds before it: another replica, or one
--   that was restarted, may be behind. Sends are the clients' affair: RocketMQ's brokers do not look
--   at a topic's permission to be written.
-- source: promise G5; RocketMQ PermName, PullMessageProcessor, PopMessageProcessor
with changes as (
  select
    c.op, c.f, c.broker_group, c.topic, c.is_acked, c.t_invoke, c.t_end, c.perm, o.node
  from topic_changes c
  join ops o on c.op = o.op
),
uses as (
  select
    o.op, o.f, o.broker_group, o.topic, o.queue, o.type, o.node, o.t_invoke, o.t_complete
  from ops o
  left semi join changes c on o.broker_group = c.broker_group and o.topic = c.topic
  where o.f in ('poll', 'pop') and o.t_complete is not null and o.node is not null
    and (o.type = 'ok' or (o.type = 'fail' and o.status = '16'))
),
lasts as (
  select u.op, max(c.t_invoke) as t_changed, max_by(c.op, struct(c.t_invoke, c.op)) as change_op
  from uses u
  join changes c on u.broker_group = c.broker_group and u.topic = c.topic
  where c.is_acked and c.t_end < u.t_invoke
  group by u.op
),
unsure as (
  select distinct l.op
  from lasts l
  join uses u on l.op = u.op
  join changes c on u.broker_group = c.broker_group and u.topic = c.topic
  where c.op <> l.change_op and c.t_end >= l.t_changed and c.t_invoke < u.t_complete
),
-- How long before the change the last fault had ended; no row where one touches what followed.
calm as (
  select l.op, max(l.t_changed - c.t_from) as calm_ns
  from lasts l
  join uses u on l.op = u.op
  join calm_stretches c on c.t_from < l.t_changed and c.t_to > u.t_complete
  group by l.op
),
compared as (
  select
    u.broker_group, u.topic, u.op, u.f, u.queue, u.type, u.node, c.op as change_op, c.perm,
    u.t_invoke, c.t_end as t_changed, d.calm_ns, c.perm in ('4', '5', '6', '7') as may_read
  from uses u
  join lasts l on u.op = l.op
  left anti join unsure x on u.op = x.op
  join changes c on l.change_op = c.op and u.node = c.node
  join calm d on u.op = d.op
  where c.f = 'create_topic' and c.perm is not null
)
select
  broker_group, topic, op, f,
  case when type = 'ok' then 'answered, though nobody may read' else 'refused, though it may be read' end as problem,
  change_op, perm, queue, node, t_invoke, t_changed
from compared
where (type = 'ok' and not may_read) or (type = 'fail' and may_read and calm_ns > 5000000000)
