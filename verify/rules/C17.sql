-- C17: queues assigned to too many, or to nobody
-- promise: G5
-- needs: ops
-- applies: select (select coalesce(sum(ops), 0) from op_counts where f = 'assignment') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'assignment' and type = 'ok'
-- nothing: no member was assigned anything
-- holds: Each queue was assigned to as many members as it was to be, and members got alike many.
-- rule: The ok answers of one round (ref), which are those of one node for all members that it knew:
--   a queue of the topic that was assigned to more or fewer members than offset says, though others
--   of its broker group were assigned; or a member that got at least two queues more than another.
--   Queues that a later change of the topic may have brought are missed by nobody.
-- source: RocketMQ QueryAssignmentProcessor, AllocateMessageQueueAveragely
with rounds as (
  select
    ref, client_group, topic, min(offset) as copies, min(op) as op, min(t_invoke) as t_invoke,
    min(node) as node,
    min(status) as strategy, count(*) as members, max(size(assigned)) as most,
    min(size(assigned)) as least
  from ops
  where f = 'assignment' and type = 'ok' and ref is not null and assigned is not null
  group by ref, client_group, topic
),
taken as (
  select o.ref, o.client_group, o.topic, a.broker_group, a.queue, count(*) as times
  from ops o lateral view explode(o.assigned) e as a
  where o.f = 'assignment' and o.type = 'ok' and o.ref is not null and a.topic = o.topic
  group by o.ref, o.client_group, o.topic, a.broker_group, a.queue
),
-- What the topic has at the end of the run it need not have had then.
changed as (
  select distinct r.ref, r.client_group, c.broker_group, c.topic
  from rounds r join topic_changes c on r.topic = c.topic and c.t_end >= r.t_invoke
),
wanted as (
  select t.ref, t.client_group, t.topic, q.broker_group, q.queue
  from (select distinct ref, client_group, topic, broker_group from taken) t
  join run_queues q on t.broker_group = q.broker_group and t.topic = q.topic
  left anti join changed h
    on t.ref = h.ref and t.client_group = h.client_group and t.broker_group = h.broker_group
    and t.topic = h.topic
  union
  select ref, client_group, topic, broker_group, queue from taken
),
counted as (
  select w.ref, w.client_group, w.topic, w.broker_group, w.queue, coalesce(t.times, cast(0 as bigint)) as times
  from wanted w
  left join taken t
    on w.ref = t.ref and w.client_group = t.client_group and w.topic = t.topic
    and w.broker_group = t.broker_group and w.queue = t.queue
)
select
  r.ref, r.client_group, r.topic, r.node, r.strategy, r.members, r.copies, c.broker_group, c.queue,
  c.times, r.op,
  case when c.times > r.copies then 'assigned to too many' else 'assigned to too few' end as problem
from counted c
join rounds r on c.ref = r.ref and c.client_group = r.client_group and c.topic = r.topic
where c.times <> r.copies
union all
select
  ref, client_group, topic, node, strategy, members, copies, null, null,
  cast(most - least as bigint), op, 'members got too different numbers of queues'
from rounds
where most - least > 1 and copies = 1
