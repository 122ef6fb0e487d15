-- A10: overtaken in the queue
-- promise: G3
-- needs: ops
-- wants: log
-- examined: select coalesce(sum(case when f = 'send' then messages else ops end), 0) from op_counts
--   where f in ('send', 'decide') and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: What was acknowledged before another was sent stands before it.
-- rule: A value that was acknowledged before another was first sent, and stands behind it. A
--   transaction is acknowledged with its commit and first sent with its half.
-- source: Jepsen's Kafka workload, G0 over real-time edges
with stands as (
  select s.broker_group, s.topic, s.queue, s.offset, s.value, f.t_sent, a.t_acked
  from standing s
  left anti join tried_twice t on s.value = t.value
  join values_sent f on s.value = f.value
  left join values_acked a on s.value = a.value
  where s.on_user_topic
),
compared as (
  select
    *,
    min(t_acked) over (
      partition by broker_group, topic, queue
      order by offset desc
      range between unbounded preceding and 1 preceding
    ) as t_acked_behind
  from stands
),
overtaken as (
  select * from compared where t_acked_behind < t_sent
)
select
  o.broker_group, o.topic, o.queue, o.offset, o.value, o.t_sent,
  min_by(
    struct(b.t_acked, a.op, b.offset, b.value), struct(b.offset, b.value, a.op)
  ) as behind_it
from overtaken o
join stands b
  on o.broker_group = b.broker_group and o.topic = b.topic and o.queue = b.queue
  and o.t_acked_behind = b.t_acked
join acked a on b.value = a.value and b.t_acked = a.t_acked
where b.offset > o.offset
group by o.broker_group, o.topic, o.queue, o.offset, o.value, o.t_sent
