-- C3: exclusive queue consumed by two
-- promise: G5
-- needs: ops
-- applies: select (select count(*) from run_groups where exclusive) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'deliver') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'deliver'
-- nothing: nothing was delivered
-- holds: No two members of a group consumed one of its exclusive queues at once.
-- rule: Two deliveries of one exclusive queue to different members that overlap. A delivery counts
--   from its invoke to its end, for five seconds at most: a member's lock expires that long before
--   its broker may give the queue to another, and a call that lasts longer can outlive it. One whose
--   queue is told by neither itself nor its messages is left out.
-- source: RocketMQ RebalanceLockManager, ConsumeMessageOrderlyService
with places as (
  -- Where a delivery does not tell its queue, its messages do.
  select
    op, min(broker_group) as broker_group, min(topic) as topic, min(queue) as queue
  from reads
  where f = 'deliver'
  group by op
),
calls as (
  select
    o.client_group, coalesce(o.broker_group, p.broker_group) as broker_group,
    coalesce(o.topic, p.topic) as topic, coalesce(o.queue, p.queue) as queue, o.op, o.process,
    o.client, o.t_invoke,
    least(coalesce(o.t_complete, o.t_invoke), o.t_invoke + 5000000000) as t_end
  from ops o
  join run_groups g on o.client_group = g.client_group and g.exclusive
  left join places p on o.op = p.op
  where o.f = 'deliver' and coalesce(o.broker_group, p.broker_group) is not null
    and coalesce(o.topic, p.topic) is not null and coalesce(o.queue, p.queue) is not null
),
line as (
  select
    *,
    max(t_end) over (
      partition by client_group, broker_group, topic, queue order by t_invoke, op
      rows between unbounded preceding and 1 preceding
    ) as t_busy
  from calls
),
late as (
  select l.*
  from line l cross join run_settings s
  where l.t_busy > l.t_invoke + coalesce(s.clock_error_ns, 0)
)
select
  l.client_group, l.broker_group, l.topic, l.queue, c.op as one_op, c.client as one_client,
  c.t_invoke as one_invoked, c.t_end as one_until, l.op as other_op, l.client as other_client,
  l.t_invoke as other_invoked
from late l
join calls c
  on l.client_group = c.client_group and l.broker_group = c.broker_group
  and l.topic = c.topic and l.queue = c.queue and l.t_busy = c.t_end
where c.client <> l.client and c.t_invoke <= l.t_invoke
