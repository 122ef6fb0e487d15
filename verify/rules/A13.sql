-- A13: disorder within a shard
-- promise: G3
-- needs: ops
-- applies: select (select count(*) from run_groups where ordered) > 0
--   and (select coalesce(sum(sharded), 0) from op_counts where f = 'send') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts
--   where f in ('poll', 'deliver') and type = 'ok'
-- nothing: no operation read anything
-- holds: Messages of one order group were consumed in the order in which they were sent.
-- rule: In an ordered group, per process and since its last assign, the first consumption of a
--   message comes after that of one of its shard that was sent only when it had been acknowledged.
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
consumed as (
  select
    r.process, r.client_group, h.assign_op, r.value,
    min(struct(r.op as op, r.place_in_op as place_in_op)) as consumed
  from reads r
  join (select client_group from run_groups where ordered) g on r.client_group = g.client_group
  left join held_under h on r.op = h.op
  where r.type = 'ok' and r.f <> 'pop'
  group by r.process, r.client_group, h.assign_op, r.value
),
placed as (
  select c.*, s.topic, s.shard, s.t_sent, s.t_acked
  from consumed c join sent s on c.value = s.value
),
compared as (
  select
    *,
    max(t_sent) over (
      partition by process, assign_op, topic, shard
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
  on l.process = p.process and l.assign_op <=> p.assign_op and l.topic <=> p.topic
  and l.shard = p.shard and l.t_sent_ahead = p.t_sent
where p.consumed.op < l.consumed.op
  or (p.consumed.op = l.consumed.op and p.consumed.place_in_op < l.consumed.place_in_op)
group by l.process, l.assign_op, l.topic, l.shard, l.t_acked, l.value, l.client_group, l.consumed
