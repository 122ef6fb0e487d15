-- A13: disorder within a shard
-- promise: G3
-- needs: ops
-- applies: select (select count(*) from run_groups where ordered) > 0
--   and (select coalesce(sum(sharded), 0) from op_counts where f = 'send') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts
--   where f in ('poll', 'deliver') and type = 'ok'
-- nothing: no operation read anything
-- holds: Messages of one order group were consumed in the order in which they were sent.
-- rule: In an ordered group, per process and since its last assign, and since the last reset of the
--   queue for the group, the first consumption of a message comes after that of one of its shard that
--   was sent only when it had been acknowledged. What was consumed while a reset may have been coming
--   into force is left out.
-- source: RocketMQ's message groups
with sent as (
  select
    a.value,
    min(a.topic) as topic,
    min(a.shard) as shard,
    min(a.t_invoke) as t_sent,
    min(case when a.type = 'ok' then a.t_complete end) as t_acked
  from attempts a left anti join tried_twice t on a.value = t.value
  where a.f = 'send' and a.shard is not null and a.type <> 'fail'
  group by a.value
),
-- Reads of queues that were reset for the group: behind which reset, and until when it, or one before
-- it, may have been coming into force.
reset_line as (
  select
    client_group, broker_group, topic, queue, op, cast(-1 as int) as place_in_op, op as reset_op,
    t_until
  from reset_spans
  union all
  select
    r.client_group, r.broker_group, r.topic, r.queue, r.op, r.place_in_op, null, null
  from reads r
  left semi join reset_spans s
    on r.client_group = s.client_group
    and r.broker_group = s.broker_group and r.topic = s.topic and r.queue = s.queue
  where r.type = 'ok' and r.f <> 'pop'
),
behind_resets as (
  select
    op, place_in_op, max(reset_op) over resets_before as reset_op,
    max(t_until) over resets_before as t_until
  from reset_line
  window resets_before as (
    partition by client_group, broker_group, topic, queue order by op, place_in_op
    rows between unbounded preceding and current row
  )
),
consumed as (
  select
    r.process, r.client_group, h.assign_op, b.reset_op, r.value,
    min(struct(r.op as op, r.place_in_op as place_in_op)) as consumed,
    min_by(r.t_invoke > b.t_until, struct(r.op, r.place_in_op)) as is_settled
  from reads r
  join (select client_group from run_groups where ordered) g on r.client_group = g.client_group
  left join held_under h on r.op = h.op
  left join behind_resets b on r.op = b.op and r.place_in_op = b.place_in_op
  where r.type = 'ok' and r.f <> 'pop'
  group by r.process, r.client_group, h.assign_op, b.reset_op, r.value
),
placed as (
  select c.*, s.topic, s.shard, s.t_sent, s.t_acked
  from consumed c join sent s on c.value = s.value
  where coalesce(c.is_settled, true)
),
compared as (
  select
    *,
    max(t_sent) over (
      partition by process, assign_op, reset_op, topic, shard
      order by consumed.op, consumed.place_in_op
      rows between unbounded preceding and 1 preceding
    ) as t_sent_ahead
  from placed
),
late as (
  select * from compared where t_sent_ahead > t_acked
)
select
  l.process, l.assign_op, l.topic, l.shard, l.t_acked, l.value, l.client_group, l.consumed,
  max_by(
    struct(p.t_sent, p.value, p.consumed), struct(p.consumed.op as op, p.consumed.place_in_op as place_in_op)
  ) as ahead_of_it
from late l
join placed p
  on l.process = p.process and l.assign_op <=> p.assign_op and l.reset_op <=> p.reset_op
  and l.topic <=> p.topic and l.shard = p.shard and l.t_sent_ahead = p.t_sent
where p.consumed.op < l.consumed.op
  or (p.consumed.op = l.consumed.op and p.consumed.place_in_op < l.consumed.place_in_op)
group by l.process, l.assign_op, l.topic, l.shard, l.t_acked, l.value, l.client_group, l.consumed
