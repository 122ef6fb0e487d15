-- M1: message of a deleted topic came back
-- promise: G3
-- needs: ops
-- wants: log, raft
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'delete_topic' and type = 'ok'
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'delete_topic' and type = 'ok'
-- nothing: no topic was deleted
-- holds: What a topic had went with it, and does not come back when it is made again.
-- rule: A read invoked in the drain, when every replica of the group had caught up, that shows a
--   value all of whose sends were answered before a deletion of their topic at their broker group
--   was invoked, one of them ok, and that deletion acknowledged before the read: on a user topic, since
--   what groups had as a retry or a dead letter is theirs. Or a record of such a value in that topic,
--   committed, that was first appended after the deletion had been answered: a half's or a delayed
--   message's.
-- source: decision 15; RocketMQ TopicConfigManager.deleteTopicConfig
with deleted as (
  select broker_group, topic, op as delete_op, t_invoke as t_deleted, t_end as t_gone
  from topic_changes
  where f = 'delete_topic' and is_acked
),
sent as (
  select
    value, min(broker_group) as broker_group, min(topic) as topic,
    max(coalesce(case when type <> 'info' then t_complete end, cast(9223372036854775807 as bigint))) as t_sent,
    max(op) as sent_op
  from attempts
  where value is not null
  group by value
  having count_if(f = 'request') = 0 and min(broker_group) = max(broker_group) and min(topic) = max(topic)
    and count_if(type = 'ok') > 0
),
-- Of the deletions that came behind a value's sends, the first that had ended.
gone as (
  select
    s.value, s.sent_op, s.t_sent, d.broker_group, d.topic,
    min_by(d.delete_op, struct(d.t_gone, d.delete_op)) as delete_op,
    min_by(d.t_deleted, struct(d.t_gone, d.delete_op)) as t_deleted, min(d.t_gone) as t_gone
  from sent s
  join deleted d on s.broker_group = d.broker_group and s.topic = d.topic
  where s.t_sent < d.t_deleted
  group by s.value, s.sent_op, s.t_sent, d.broker_group, d.topic
)
select
  g.broker_group, g.topic, g.value, 'shown' as problem, g.sent_op, g.delete_op, g.t_sent, g.t_deleted,
  min(r.op) as read_op, count(*) as times,
  min_by(struct(r.f, r.topic, r.queue, r.offset, r.node), struct(r.op, r.place_in_op)) as read,
  cast(null as bigint) as index, cast(null as bigint) as t_append
from messages r
join gone g on r.value = g.value
cross join run_settings s
left anti join run_left_behind b on g.broker_group = b.broker_group
where r.f in ('poll', 'deliver', 'pop', 'query', 'search')
  -- One that came again is shown with its topic's name and no place where the client hides that.
  and r.on_user_topic and (r.offset is not null or coalesce(r.reconsume, 0) = 0)
  and r.t_invoke >= s.drain_from and r.t_invoke > g.t_gone
group by g.broker_group, g.topic, g.value, g.sent_op, g.delete_op, g.t_sent, g.t_deleted
union all
select
  g.broker_group, g.topic, g.value, 'stored again', g.sent_op, g.delete_op, g.t_sent, g.t_deleted,
  null, count(distinct r.index), null, min(r.index), min(a.t_append)
from gone g
join records r on g.value = r.named and g.broker_group = r.broker_group and g.topic = r.topic
join first_appends a
  on r.broker_group = a.broker_group and r.index = a.index and r.term = a.term
cross join run_settings s
-- Where a trace is missing entries, the first append may have gone untold.
left anti join trace_reach t on g.broker_group = t.broker_group
where r.is_visible and a.t_append - g.t_gone > coalesce(s.clock_error_ns, cast(0 as bigint))
group by g.broker_group, g.topic, g.value, g.sent_op, g.delete_op, g.t_sent, g.t_deleted
