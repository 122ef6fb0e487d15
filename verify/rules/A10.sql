-- A10: overtaken in the queue
-- promise: G3
-- needs: ops
-- wants: log
-- examined: select coalesce(sum(case when f = 'send' then messages else ops end), 0) from op_counts
--   where f in ('send', 'decide') and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: What was acknowledged before another was sent stands before it.
-- rule: A value that was acknowledged before another was first sent, and stands behind it: by more
--   than the clocks may differ, where it was another client. A transaction is acknowledged with its
--   commit and first sent with its half.
-- source: Jepsen's Kafka workload, G0 over real-time edges
with senders as (
  -- Whose clock told it: of interest where there are several.
  select o.op, o.client
  from ops o cross join run_settings s
  where s.clock_error_ns > 0 and o.f in ('send', 'half', 'delay', 'request', 'decide')
),
stands as (
  select
    s.broker_group, s.topic, s.queue, s.offset, s.value, f.t_sent, a.t_acked,
    b.client as sent_by, c.client as acked_by
  from standing s
  left anti join tried_twice t on s.value = t.value
  join values_sent f on s.value = f.value
  left join values_acked a on s.value = a.value
  left join senders b on f.sent_op = b.op
  left join senders c on a.op = c.op
  where s.on_user_topic
),
of_one_client as (
  select *
  from stands
  where sent_by = acked_by or (sent_by is not null and acked_by is null)
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
compared_by_client as (
  select
    *,
    min(t_acked) over (
      partition by broker_group, topic, queue, sent_by
      order by offset desc
      range between unbounded preceding and 1 preceding
    ) as t_acked_behind
  from of_one_client
),
overtaken as (
  select broker_group, topic, queue, offset, value, t_sent, min(t_acked_behind) as t_acked_behind
  from (
    select c.broker_group, c.topic, c.queue, c.offset, c.value, c.t_sent, c.t_acked_behind
    from compared c cross join run_settings s
    where c.t_acked_behind + coalesce(s.clock_error_ns, cast(0 as bigint)) < c.t_sent
    union all
    select broker_group, topic, queue, offset, value, t_sent, t_acked_behind
    from compared_by_client
    where t_acked_behind < t_sent
  ) o
  group by broker_group, topic, queue, offset, value, t_sent
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
