-- M4: user may not what it may, or may what it may not
-- promise: G5
-- needs: ops
-- wants: faults
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'account' and type = 'ok'
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'account' and type = 'ok'
-- nothing: no change of a user was acknowledged
-- holds: Users and permissions are what the last acknowledged change made them.
-- rule: A send signed by a user (ref) that was stored though the last change of that user for its
--   topic (or for all) at its broker group, acknowledged before the send was invoked, left it without
--   the right to; or that was refused for that reason (status 16) though it left it the right. Only
--   where no other such change may have come in between; and a refusal only where no fault touches
--   the time from that change to the answer, nor, unless the replica that refused is the one that had
--   acknowledged the change, the five seconds before it, since a replica that is behind refuses by
--   what it knows.
-- source: promise G5; decision 20
with changes as (
  select
    op, broker_group, topic, key as name, ref as change, decision, node, t_invoke,
    type = 'ok' as is_acked,
    case when type = 'ok' then t_complete else cast(9223372036854775807 as bigint) end as t_end
  from ops
  where f = 'account' and type <> 'fail' and key is not null
),
sends as (
  select
    o.op, o.broker_group, o.topic, o.ref as name, o.type, o.node, o.t_invoke, o.t_complete
  from ops o left semi join changes c on o.broker_group = c.broker_group and o.ref = c.name
  where o.f = 'send' and o.t_complete is not null
    and (o.type = 'ok' or (o.type = 'fail' and o.status = '16'))
),
lasts as (
  select s.op, max(c.t_invoke) as t_changed, max_by(c.op, struct(c.t_invoke, c.op)) as change_op
  from sends s
  join changes c
    on s.broker_group = c.broker_group and s.name = c.name and coalesce(s.topic = c.topic, true)
  where c.is_acked and c.t_end < s.t_invoke
  group by s.op
),
unsure as (
  select distinct l.op
  from lasts l
  join sends s on l.op = s.op
  join changes c
    on s.broker_group = c.broker_group and s.name = c.name and coalesce(s.topic = c.topic, true)
  where c.op <> l.change_op and c.t_end >= l.t_changed and c.t_invoke < s.t_complete
),
calm as (
  select distinct l.op
  from lasts l
  join sends s on l.op = s.op
  join changes b on l.change_op = b.op
  join calm_stretches c
    on c.t_to > s.t_complete
    and (c.t_from + cast(5000000000 as bigint) < l.t_changed or (c.t_from < l.t_changed and s.node = b.node))
)
select
  s.broker_group, s.name, s.op,
  case when s.type = 'ok' then 'stored, though it may not send' else 'refused, though it may send' end as problem,
  c.op as change_op, c.change, s.topic, s.node, s.t_invoke, c.t_end as t_changed
from sends s
join lasts l on s.op = l.op
left anti join unsure u on s.op = u.op
join changes c on l.change_op = c.op
left join calm d on s.op = d.op
where (s.type = 'ok' and c.decision = 'deny')
  or (s.type = 'fail' and c.decision = 'allow' and d.op is not null)
