-- P6: wrong dead letter
-- promise: G5
-- needs: ops
-- wants: log
-- applies: select (select coalesce(sum(ops), 0) from op_counts where f = 'pop') > 0
--   and (select count(*) from run_groups where retries_max is not null) > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'pop' and type = 'ok'
-- nothing: no pop showed a message
-- holds: A popped message became a dead letter once, after its last retry, and only unacknowledged.
-- rule: Of a group that pops, with retries_max: a dead letter that was read with a count that does
--   not exceed it; one at two places; one that the group had acknowledged in time; and an ok pop
--   that shows a count above it. Of a topic in which the group was reset what was popped may be
--   dead twice, or dead and acknowledged: the reset may have sent the group back.
-- source: RocketMQ PopReviveService; the run format, retries_max
with popping as (
  select g.client_group, g.retries_max, concat('%DLQ%', g.client_group) as dead_topic
  from run_groups g
  left semi join (select distinct client_group from ops where f = 'pop') p
    on g.client_group = p.client_group
  where g.retries_max is not null
),
dead as (
  select
    p.client_group, p.retries_max, r.broker_group, r.topic, r.queue, r.offset, r.value, r.op,
    r.reconsume
  from popping p join reads r on p.dead_topic = r.topic
  where r.value is not null
  union all
  select
    p.client_group, p.retries_max, r.broker_group, r.topic, r.queue, r.offset, r.named,
    cast(null as bigint), cast(null as int)
  from popping p join records r on p.dead_topic = r.topic
  where r.named is not null
),
found as (
  select
    'dead before its retries were used up' as problem, client_group, value,
    min(op) as op, min(reconsume) as reconsume, min(offset) as offset
  from dead
  where reconsume <= retries_max
  group by client_group, value
  union all
  select 'dead twice', d.client_group, d.value, min(d.op), null, min(d.offset)
  from dead d
  left anti join tried_twice w on d.value = w.value
  where d.offset is not null
  group by d.client_group, d.value
  having min(d.offset) <> max(d.offset) or min(d.queue) <> max(d.queue)
    or min(d.broker_group) <> max(d.broker_group)
  union all
  select 'dead though it was acknowledged', d.client_group, d.value, min(k.op), null, min(d.offset)
  from dead d
  join pop_acks k on d.client_group = k.client_group and d.value = k.value
  left anti join tried_twice w on d.value = w.value
  where k.is_sure
  group by d.client_group, d.value
  union all
  select
    'delivered after its last retry', h.client_group, h.value, min(h.op), max(h.reconsume),
    min(h.offset)
  from pop_handouts h join popping p on h.client_group = p.client_group
  where h.reconsume > p.retries_max
  group by h.client_group, h.value
)
select f.client_group, f.value, f.problem, f.op, f.reconsume, f.offset
from found f
-- What a reset may have sent the group back to is handed out, counted and dead anew.
left anti join (
  select distinct h.client_group, h.value
  from pop_handouts h
  join pop_resets r
    on h.client_group = r.client_group and h.broker_group = r.broker_group and h.topic = r.topic
) s
  on f.client_group = s.client_group and f.value = s.value
  and f.problem in ('dead twice', 'dead though it was acknowledged')
