-- A22: two owners
-- promise: G5
-- needs: ops
-- wants: faults
-- applies: select (select count(*) from run_groups where kind = 'cluster') > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'assign') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'assign' and type <> 'fail'
-- nothing: no assign was answered
-- holds: No queue had two owners for longer than a rebalance takes.
-- rule: Two members (clients) of a cluster group that hold one queue in one stretch longer than
--   rebalance_ms outside of fault windows. A member holds what its last assign names, from its end
--   (its invoke where it has none) to the invoke of its next assign, or of its last operation.
-- source: RocketMQ's rebalance; promise G5
with assigns as (
  select
    o.op, o.client_group, o.client, coalesce(o.t_complete, o.t_invoke) as t_from,
    lead(o.t_invoke) over (
      partition by o.client_group, o.client order by o.t_invoke, o.op
    ) as t_next
  from ops o
  where o.f = 'assign' and o.type <> 'fail'
),
lives as (
  select client, max(t_invoke) as t_last from ops group by client
),
holds as (
  select
    a.client_group, n.broker_group, n.topic, n.queue, a.client, a.op, a.t_from,
    coalesce(a.t_next, l.t_last) as t_to, g.rebalance_ns
  from assigns a
  join run_groups g on a.client_group = g.client_group and g.kind = 'cluster'
  join lives l on a.client = l.client
  join (select distinct op, broker_group, topic, queue from assignments) n on a.op = n.op
  where coalesce(a.t_next, l.t_last) - a.t_from > g.rebalance_ns
),
both as (
  select
    a.client_group, a.broker_group, a.topic, a.queue, a.rebalance_ns,
    a.client as one_client, a.op as one_op, b.client as other_client, b.op as other_op,
    greatest(a.t_from, b.t_from) as t_from, least(a.t_to, b.t_to) as t_to
  from holds a
  join holds b
    on a.client_group = b.client_group and a.broker_group <=> b.broker_group
    and a.topic <=> b.topic and a.queue <=> b.queue
  where a.client < b.client
    and least(a.t_to, b.t_to) - greatest(a.t_from, b.t_from) > a.rebalance_ns
)
select
  b.client_group, b.broker_group, b.topic, b.queue,
  greatest(b.t_from, c.t_from) as t_from, least(b.t_to, c.t_to) as t_to,
  b.one_client, b.one_op, b.other_client, b.other_op
from both b
join calm_stretches c on c.t_from < b.t_to and c.t_to > b.t_from
where least(b.t_to, c.t_to) - greatest(b.t_from, c.t_from) > b.rebalance_ns
