-- M17: group is not what its last change made it
-- promise: G5
-- needs: ops
-- wants: faults
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts
--   where f in ('create_group', 'delete_group') and type = 'ok'
-- examined: select coalesce(sum(ops), 0) from op_counts
--   where f in ('create_group', 'delete_group') and type = 'ok'
-- nothing: no change of a group was acknowledged
-- holds: A group is configured as it was last told, gone when it was deleted, and its offsets with it
--   where they were to go.
-- rule: A broker, asked for a group's configuration after it had acknowledged a change of it, shows
--   another one, or the one that was deleted (groups are made with configurations that no broker
--   gives by itself, which a heartbeat brings back); only where no other change may have come in between
--   and no fault touches the time from that change's invoke to the answer. Or an offset that a group
--   fetched after a deletion that was to clean its offsets had been acknowledged, without anything
--   in that queue that may have moved it behind the deletion: a commit, a reset, an offset on a poll,
--   a pop, a delivery or an acknowledgement.
-- source: RocketMQ SubscriptionGroupManager, AdminBrokerProcessor.deleteSubscriptionGroup
with changes as (
  select
    op, f, client_group, broker_group, node, status, decision, t_invoke, type = 'ok' as is_acked,
    case when type = 'ok' then t_complete else cast(9223372036854775807 as bigint) end as t_end
  from ops
  where f in ('create_group', 'delete_group') and type <> 'fail'
),
asked as (
  select op, client_group, broker_group, node, status, t_invoke, t_complete
  from ops
  where f = 'group' and type = 'ok'
),
lasts as (
  select a.op, max(c.t_invoke) as t_changed, max_by(c.op, struct(c.t_invoke, c.op)) as change_op
  from asked a
  join changes c on a.client_group = c.client_group and a.broker_group = c.broker_group
  where c.is_acked and c.t_end < a.t_invoke
  group by a.op
),
unsure as (
  select distinct l.op
  from lasts l
  join asked a on l.op = a.op
  join changes c on a.client_group = c.client_group and a.broker_group = c.broker_group
  where c.op <> l.change_op and c.t_end >= l.t_changed and c.t_invoke < a.t_complete
),
-- What a deletion deleted: the configuration that had been made last.
made_before as (
  select l.op, max_by(c.status, struct(c.t_invoke, c.op)) as status
  from lasts l
  join asked a on l.op = a.op
  join changes c on a.client_group = c.client_group and a.broker_group = c.broker_group
  where c.f = 'create_group' and c.t_invoke < l.t_changed
  group by l.op
),
shown as (
  select
    a.client_group, a.broker_group, a.op, a.node, c.op as change_op, a.status as shown,
    case when c.f = 'create_group' then c.status end as wanted, a.t_invoke, l.t_changed,
    case
      when c.f = 'create_group' and a.status is null then 'it is gone though it was made'
      when c.f = 'create_group' and a.status <> c.status then 'it is configured otherwise'
      when c.f = 'delete_group' and a.status = m.status then 'it is there though it was deleted'
    end as problem
  from lasts l
  join asked a on l.op = a.op
  join changes c on l.change_op = c.op and a.node = c.node
  join calm_stretches s on s.t_from < l.t_changed and s.t_to > a.t_complete
  left anti join unsure u on l.op = u.op
  left join made_before m on l.op = m.op
),
-- Offsets that were to go with their group.
fetches as (
  select op, client_group, broker_group, topic, queue, offset, node, t_invoke, t_complete
  from ops
  where f = 'fetch_offset' and type = 'ok' and offset is not null
),
cleaned as (
  select f.op, max(c.t_invoke) as t_cleaned, max_by(c.op, struct(c.t_invoke, c.op)) as change_op
  from fetches f
  join changes c on f.client_group = c.client_group and f.broker_group = c.broker_group
  where c.f = 'delete_group' and c.decision = 'clean' and c.is_acked and c.t_end < f.t_invoke
  group by f.op
),
written as (
  select
    client_group, broker_group, topic, queue, t_invoke,
    case when type = 'ok' then t_complete else cast(9223372036854775807 as bigint) end as t_end
  from ops
  where f in ('commit_offset', 'reset') and type <> 'fail'
  union all
  -- What moves a group's offset by the way: what was consumed, popped, or acknowledged in order.
  select
    client_group, broker_group, topic, queue, t_invoke,
    case
      when type <> 'info' then coalesce(t_complete, cast(9223372036854775807 as bigint))
      else cast(9223372036854775807 as bigint)
    end
  from ops
  where f in ('pop', 'deliver', 'ack')
  union all
  -- No answer tells what became of an offset that rode on a poll.
  select
    client_group, broker_group, topic, queue, t_invoke, cast(9223372036854775807 as bigint)
  from ops
  where f = 'poll' and commit_offset is not null
),
rewritten as (
  select distinct d.op
  from cleaned d
  join fetches f on d.op = f.op
  join written w
    on f.client_group = w.client_group and f.broker_group = w.broker_group
    and f.topic = coalesce(w.topic, f.topic) and f.queue = coalesce(w.queue, f.queue)
  where w.t_end >= d.t_cleaned and w.t_invoke < f.t_complete
)
select
  client_group, broker_group, op, problem, change_op, shown, wanted, node, cast(null as string) as topic,
  cast(null as int) as queue, cast(null as bigint) as offset, t_invoke, t_changed
from shown
where problem is not null
union all
select
  f.client_group, f.broker_group, f.op, 'it has an offset though those were cleaned', d.change_op,
  null, null, f.node, f.topic, f.queue, f.offset, f.t_invoke, d.t_cleaned
from cleaned d
join fetches f on d.op = f.op
left anti join rewritten r on d.op = r.op
