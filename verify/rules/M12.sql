-- M12: answer is not what was known to follow
-- promise: G8
-- needs: ops
-- wants: faults, raft
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'ask'
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'ask' and type = 'ok'
-- nothing: no question was answered
-- holds: Every question was answered with what followed from all that was acknowledged before.
-- rule: An ok ask with another answer (status) than the one that its client had computed (ref), by a
--   model that shares no code with the system. One without a ref is not judged: whoever asked could
--   not know. One that a deposed leader may answer otherwise by right (decision calm) is judged where
--   it lay in a stretch without fault windows, two seconds or more behind its beginning, and its
--   broker group (every one, where it names none) elected no leader in it or in the two seconds
--   before. The first leader of a group has nothing that another one knew.
-- source: own rule; the sources of each request are named in chaos/workload/parts
with wrong as (
  select
    op, key, ref, status, decision, t_invoke, t_complete, node, process, client_group, broker_group,
    topic, queue
  from ops
  where f = 'ask' and type = 'ok' and ref is not null and not (ref <=> status)
),
changes as (
  select m.broker_group, m.t
  from masters m
  join (select broker_group, min(t) as t_first from masters group by broker_group) f
    on m.broker_group = f.broker_group and m.t > f.t_first
),
calm as (
  select w.op
  from wrong w
  join calm_stretches c on w.t_invoke > c.t_from + 2000000000 and w.t_complete < c.t_to
  left anti join changes m
    on coalesce(w.broker_group, m.broker_group) = m.broker_group
    and m.t >= w.t_invoke - 2000000000 and m.t <= w.t_complete
  where w.decision = 'calm'
)
select
  w.op, w.key as asked, w.ref as expected, w.status as answered, w.node, w.process, w.client_group,
  w.t_invoke, w.broker_group, w.topic, w.queue
from wrong w
left join calm c on w.op = c.op
where w.decision is null or c.op is not null
