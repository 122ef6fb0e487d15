-- R15: acknowledged with too few replicas
-- promise: G1
-- needs: ops, raft, log
-- engines: sync
-- reaches: yes
-- examined: select coalesce(sum(ops), 0) from op_counts where f in ('send', 'half') and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: What was acknowledged was in the logs of as many nodes as the mode says.
-- rule: An ok send or half whose record, at the offset that the answer told, stands in an entry that
--   fewer nodes of its group than in_sync_replicas had told by then, the clocks' error later at most:
--   by its append, or by a start that found the entry or a later one.
-- source: RocketMQ GroupTransferService, inSyncReplicas; decision 28
with answers as (
  select op, f, t_complete, broker_group, topic, queue, offset, value
  from attempts
  where f = 'send' and type = 'ok' and offset is not null and queue is not null
  union all
  select
    op, f, t_complete, broker_group, 'RMQ_SYS_TRANS_HALF_TOPIC', cast(0 as int), op_offset, value
  from attempts
  where f = 'half' and type = 'ok' and op_offset is not null
),
standing as (
  select a.op, a.f, a.value, a.broker_group, a.t_complete, min(r.index) as index
  from answers a
  join records r
    on a.broker_group = r.broker_group and a.topic = r.topic and a.queue = r.queue
    and a.offset = r.offset and a.value = r.named
  group by a.op, a.f, a.value, a.broker_group, a.t_complete
),
-- When each node first had each entry, of the logs that are left.
kept as (
  select distinct broker_group, index, chain from log where committed and chain is not null
),
had as (
  select k.broker_group, k.index, r.node, min(r.t) as t
  from kept k
  join raft r on k.broker_group = r.broker_group and k.index = r.index and k.chain = r.chain
  where r.event = 'append'
  group by k.broker_group, k.index, r.node
),
starts as (
  select broker_group, node, t, index from raft where event = 'start' and index > 0
),
owed as (
  select
    s.op, s.f, s.value, s.broker_group, s.index, s.t_complete, v.node,
    s.t_complete + c.error_ns as t_by
  from standing s
  join run_voters v on s.broker_group = v.broker_group
  cross join (
    select coalesce(max(clock_error_ns), cast(0 as bigint)) as error_ns from run_settings
  ) c
),
-- A node without an append in time may have told the entry by a start.
late as (
  select o.*, coalesce(h.t <= o.t_by, false) as is_in_time
  from owed o
  left join had h on o.broker_group = h.broker_group and o.index = h.index and o.node = h.node
),
short as (
  select op, f, value, broker_group, index, t_complete, count_if(is_in_time) as nodes
  from late
  group by op, f, value, broker_group, index, t_complete
  having count_if(is_in_time) < (select coalesce(max(in_sync_replicas), cast(2 as bigint)) from run_settings)
),
found_by_start as (
  select l.op, count(distinct l.node) as nodes
  from late l
  join short s on l.op = s.op
  join starts t
    on l.broker_group = t.broker_group and l.node = t.node and t.index >= l.index and t.t <= l.t_by
  where not l.is_in_time
  group by l.op
)
select
  s.op, s.f, s.value, s.broker_group, s.index, s.t_complete,
  s.nodes + coalesce(f.nodes, cast(0 as bigint)) as nodes, c.wanted
from short s
left join found_by_start f on s.op = f.op
cross join (
  select coalesce(max(in_sync_replicas), cast(2 as bigint)) as wanted from run_settings
) c
where s.nodes + coalesce(f.nodes, cast(0 as bigint)) < c.wanted
