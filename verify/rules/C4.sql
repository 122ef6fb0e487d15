-- C4: exclusive queue consumed out of order
-- promise: G3
-- needs: ops
-- applies: select (select count(*) from run_groups where exclusive) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'deliver') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'deliver'
-- nothing: nothing was delivered
-- holds: An exclusive queue was consumed in its order: nothing behind a message that was not
--   consumed yet.
-- rule: A message of an exclusive queue was consumed or given up (refused with reconsume =
--   retries_max or more), and one that stands before it was for the first time by a later delivery:
--   of another client by more than the clocks may differ.
--   Queues that the group was reset in are left out.
-- source: RocketMQ ConsumeMessageOrderlyService; promise G3
with shown as (
  select
    r.client_group, r.broker_group, r.topic, r.queue, r.offset,
    min(r.value) as value,
    min(r.op) as done_op,
    min(r.t_invoke) as t_done,
    min_by(r.client, r.op) as client
  from reads r
  join run_groups g on r.client_group = g.client_group and g.exclusive
  left anti join group_resets t
    on r.client_group = t.client_group and r.broker_group = t.broker_group
    and r.topic = t.topic and r.queue = t.queue
  where r.f = 'deliver' and r.offset is not null
    and (r.type = 'ok' or (r.type = 'fail' and coalesce(r.reconsume, 0) >= g.retries_max))
  group by r.client_group, r.broker_group, r.topic, r.queue, r.offset
),
line as (
  select
    *,
    max(t_done) over (
      partition by client_group, broker_group, topic, queue order by offset
      rows between unbounded preceding and 1 preceding
    ) as t_before,
    max(t_done) over (
      partition by client_group, broker_group, topic, queue, client order by offset
      rows between unbounded preceding and 1 preceding
    ) as t_before_by_itself
  from shown
),
early as (
  select l.*
  from line l cross join run_settings s
  where l.t_before_by_itself > l.t_done
    or l.t_before > l.t_done + coalesce(s.clock_error_ns, cast(0 as bigint))
)
select
  e.client_group, e.broker_group, e.topic, e.queue, e.offset, e.value, e.done_op as op,
  max(s.done_op) as before_op,
  max_by(struct(s.offset, s.value), struct(s.done_op, -s.offset)) as before_it
from early e
cross join run_settings r
join shown s
  on e.client_group = s.client_group and e.broker_group <=> s.broker_group
  and e.topic <=> s.topic and e.queue <=> s.queue
  and (
    (s.client = e.client and s.t_done = e.t_before_by_itself)
    or (s.t_done = e.t_before and s.t_done > e.t_done + coalesce(r.clock_error_ns, cast(0 as bigint)))
  )
where s.offset < e.offset and s.t_done > e.t_done
group by e.client_group, e.broker_group, e.topic, e.queue, e.offset, e.value, e.done_op
