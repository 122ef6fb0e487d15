-- M1: message of a deleted topic came back
-- promise: G3
-- needs: ops
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'delete_topic' and type = 'ok'
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'delete_topic' and type = 'ok'
-- nothing: no topic was deleted
-- holds: What a topic had went with it, and does not come back when it is made again.
-- rule: A read invoked in the drain, when every replica of the group had caught up, that shows a
--   value all of whose sends were answered before an acknowledged deletion of their topic at their
--   broker group was invoked, the last of them ok.
-- source: decision 15; RocketMQ TopicConfigManager.deleteTopicConfig
with deleted as (
  select broker_group, topic, max(t_invoke) as t_deleted, max_by(op, struct(t_invoke, op)) as delete_op
  from topic_changes
  where f = 'delete_topic' and is_acked
  group by broker_group, topic
),
sent as (
  select
    value, min(broker_group) as broker_group, min(topic) as topic,
    max(coalesce(case when type <> 'info' then t_complete end, cast(9223372036854775807 as bigint))) as t_sent,
    max(op) as sent_op
  from attempts
  where value is not null
  group by value
  having count_if(f <> 'send') = 0 and min(broker_group) = max(broker_group) and min(topic) = max(topic)
    and count_if(type = 'ok') > 0
),
gone as (
  select s.value, s.sent_op, s.t_sent, d.broker_group, d.topic, d.delete_op, d.t_deleted
  from sent s
  join deleted d on s.broker_group = d.broker_group and s.topic = d.topic
  where s.t_sent < d.t_deleted
)
select
  g.broker_group, g.topic, g.value, g.sent_op, g.delete_op, g.t_sent, g.t_deleted,
  min(r.op) as read_op, count(*) as reads,
  min_by(struct(r.f, r.topic, r.queue, r.offset, r.node), struct(r.op, r.place_in_op)) as read
from messages r
join gone g on r.value = g.value
cross join run_settings s
left anti join run_left_behind b on g.broker_group = b.broker_group
where r.f in ('poll', 'deliver', 'pop', 'query', 'search')
  and r.t_invoke >= s.drain_from and r.t_invoke > g.t_deleted
group by g.broker_group, g.topic, g.value, g.sent_op, g.delete_op, g.t_sent, g.t_deleted
