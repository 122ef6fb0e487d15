-- M7: offset stored though its commit failed
-- promise: G7
-- needs: ops, log
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'commit_offset'
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'commit_offset'
-- nothing: no offset was committed
-- holds: A consumer offset whose commit was told as failed is not stored.
-- rule: A committed offset record of a listed group, where every commit_offset of that group, queue
--   and offset ended fail, and it rode on no poll. Queues in which the group was reset are left out.
-- source: promise G7; a timeout is not a failure
with tried as (
  select
    client_group, broker_group, topic, queue, offset, min(op) as op, max(type) as greatest_type,
    min(type) as least_type
  from ops
  where f = 'commit_offset' and offset is not null
  group by client_group, broker_group, topic, queue, offset
),
refused as (
  select t.client_group, t.broker_group, t.topic, t.queue, t.offset, t.op
  from tried t left semi join run_groups g on t.client_group = g.client_group
  left anti join ops p
    on p.f = 'poll' and t.client_group = p.client_group and t.broker_group = p.broker_group
    and t.topic = p.topic and t.queue = p.queue and t.offset = p.commit_offset
  -- A reset stores an offset, too.
  left anti join group_resets s
    on t.client_group = s.client_group and t.broker_group = s.broker_group
    and t.topic = s.topic and t.queue = s.queue
  where t.least_type = 'fail' and t.greatest_type = 'fail'
)
select
  r.client_group, r.broker_group, r.topic, r.queue, r.offset, r.op, min(l.index) as index,
  min_by(l.node, struct(l.index, l.node)) as node
from refused r
join log l
  on r.client_group = l.client_group and r.broker_group = l.broker_group and r.topic = l.topic
  and r.queue = l.queue and r.offset = l.queue_offset
where l.kind = 'offset' and l.committed
group by r.client_group, r.broker_group, r.topic, r.queue, r.offset, r.op
