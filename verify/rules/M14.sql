-- M14: setting is not what was set
-- promise: G5
-- needs: ops
-- wants: faults
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'set' and type = 'ok'
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'get' and type = 'ok'
-- nothing: no setting was asked for
-- holds: Every answer about what an operator has set shows what was set last.
-- rule: A `get` whose value is none that the setting (key) may have: that of the last `set` of it
--   acknowledged before the question, or of another one that may have taken effect behind that one
--   and before the answer. One with decision `now` is linearizable and compared whatever happened.
--   Of any other only where no fault touches the time from that change to the answer, if the same
--   node has acknowledged it; else where none touches the time from five seconds before the question to
--   the answer, and the change was acknowledged more than a second before the question: other
--   replicas, and name servers, hear of it later.
-- source: promise G5; RocketMQ AdminBrokerProcessor, RouteInfoManager, KVConfigManager
with changes as (
  select
    op, key, status as value, node, ref, t_invoke, type = 'ok' as is_acked,
    case when type = 'ok' then t_complete else cast(9223372036854775807 as bigint) end as t_end
  from ops
  where f = 'set' and type <> 'fail' and key is not null and status is not null
),
asked as (
  select
    op, broker_group, key, status as value, node, ref, coalesce(decision, '') = 'now' as is_exact,
    t_invoke, t_complete
  from ops
  where f = 'get' and type = 'ok' and key is not null and status is not null
),
lasts as (
  select a.op, max(c.t_invoke) as t_changed, max_by(c.op, struct(c.t_invoke, c.op)) as change_op
  from asked a
  join changes c on a.key = c.key
  where c.is_acked and c.t_end <= a.t_invoke
  group by a.op
),
legal as (
  select distinct l.op
  from lasts l
  join asked a on l.op = a.op
  join changes c on a.key = c.key and a.value = c.value
  where c.t_end >= l.t_changed and c.t_invoke < a.t_complete
),
-- Answers that tell of another time than that of the change are compared in calm times only.
calm as (
  select distinct l.op
  from lasts l
  join asked a on l.op = a.op
  join changes c on l.change_op = c.op
  join calm_stretches s on s.t_to > a.t_complete
  where (a.node = c.node and s.t_from < l.t_changed)
    or (s.t_from + cast(5000000000 as bigint) < a.t_invoke and c.t_end + cast(1000000000 as bigint) < a.t_invoke)
)
select
  a.broker_group, a.key, a.op, a.value as shown, c.value as wanted, a.ref as asked_by, a.node,
  c.op as change_op, c.ref as changed_by, c.node as changed_at, a.t_invoke, c.t_end as t_changed
from lasts l
join asked a on l.op = a.op
join changes c on l.change_op = c.op
left anti join legal g on l.op = g.op
left join calm d on l.op = d.op
where a.is_exact or d.op is not null
