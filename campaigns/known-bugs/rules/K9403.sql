-- K9403: a topic that nobody changed is another one
-- promise: none
-- needs: ops
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'route')
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'route' and type = 'ok'
-- nothing: nobody was asked for a topic
-- holds: A topic that nobody made anew, changed or deleted stays what it is, whoever leads.
-- rule: Of such a topic a leader has other queues or another permission than one that was asked
--   before had, or has none. M2 judges topics that change, by what the last change was.
-- source: RocketMQ issues 9403, 9804
with asked as (
  select
    v.broker_group, v.topic, v.op, v.node, v.t_invoke, coalesce(size(v.queues), 0) as queues,
    coalesce(v.perm, '') as perm
  from topic_views v
  left anti join topic_changes c on v.broker_group = c.broker_group and v.topic = c.topic
  where v.by_owner
),
firsts as (
  select
    broker_group, topic, min(op) as op, min_by(queues, op) as queues, min_by(perm, op) as perm,
    min_by(node, op) as node
  from asked
  where queues > 0
  group by broker_group, topic
)
select
  a.broker_group, a.topic, a.op, a.node, a.t_invoke, a.queues, a.perm, f.op as first_op,
  f.node as first_node, f.queues as first_queues, f.perm as first_perm
from asked a
join firsts f on a.broker_group = f.broker_group and a.topic = f.topic
where a.op > f.op and (a.queues <> f.queues or a.perm <> f.perm)
