-- A14: lagging poll
-- promise: G8
-- needs: ops
-- applies: select (select coalesce(sum(ops), 0) from op_counts where f = 'poll') > 0
--   and (select lag_ns from run_settings) is not null
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'poll' and type = 'ok' and not final
-- nothing: no poll was answered while the load ran
-- holds: No reader was kept from known messages for longer than allowed.
-- rule: An ok poll that is not final and leaves unread, behind the last message that it showed (an
--   empty one: from the offset it asked for on), what had been acknowledged lag_ms before its invoke.
--   Unread: beyond all that the poll's group (broadcast: its client) had read ok by then.
-- source: Jepsen's Kafka workload, realtime-lag
with polls as (
  select
    o.op, o.process, o.client_group, case when g.kind = 'broadcast' then o.client end as member,
    o.broker_group, o.topic, o.queue, o.node, o.term, o.t_invoke, o.t_complete,
    case
      when size(o.messages) = 0 then o.offset - 1
      else array_max(transform(o.messages, m -> m.offset))
    end as last_offset
  from ops o left join run_groups g on o.client_group = g.client_group
  where o.f = 'poll' and o.type = 'ok' and not coalesce(o.final, false) and o.t_complete is not null
),
line as (
  select broker_group, topic, queue, t_acked as at, 1 as is_acked, offset, op
  from acked_places
  union all
  select
    p.broker_group, p.topic, p.queue, p.t_invoke - s.lag_ns, 0, cast(null as bigint), p.op
  from polls p cross join run_settings s
  where p.last_offset is not null
),
compared as (
  select
    is_acked, op,
    max(offset) over (
      partition by broker_group, topic, queue order by at, is_acked, op, offset
      rows between unbounded preceding and current row
    ) as overdue
  from line
),
behind as (
  select p.*, c.overdue
  from polls p join compared c on p.op = c.op
  where c.is_acked = 0 and c.overdue > p.last_offset
),
group_line as (
  select
    r.client_group, case when g.kind = 'broadcast' then r.client end as member,
    r.broker_group, r.topic, r.queue, r.t_complete as at, 0 as is_poll, r.offset, r.op
  from reads r
  left join run_groups g on r.client_group = g.client_group
  left semi join behind b
    on r.client_group = b.client_group and r.broker_group = b.broker_group
    and r.topic = b.topic and r.queue = b.queue
  where r.type = 'ok' and r.offset is not null and r.t_complete is not null
  union all
  select
    client_group, member, broker_group, topic, queue, t_complete, 1, cast(null as bigint), op
  from behind
),
group_read as (
  select
    is_poll, op,
    max(offset) over (
      partition by client_group, member, broker_group, topic, queue
      order by at, is_poll, op, offset
      rows between unbounded preceding and current row
    ) as read_to
  from group_line
),
lagging as (
  select b.*
  from behind b join group_read r on b.op = r.op
  where r.is_poll = 1 and b.overdue > coalesce(r.read_to, cast(-1 as bigint))
)
select
  l.process, l.op, l.client_group, l.broker_group, l.topic, l.queue, l.node, l.term, l.t_invoke,
  l.last_offset, l.overdue as unread_offset,
  min_by(struct(a.value, a.t_acked, a.op), struct(a.t_acked, a.op)) as unread
from lagging l
join acked_places a
  on l.broker_group = a.broker_group and l.topic = a.topic and l.queue = a.queue
  and l.overdue = a.offset
group by
  l.process, l.op, l.client_group, l.broker_group, l.topic, l.queue, l.node, l.term, l.t_invoke,
  l.last_offset, l.overdue
