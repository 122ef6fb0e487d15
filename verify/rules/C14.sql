-- C14: broadcast member went back
-- promise: G5
-- needs: ops
-- applies: select (select count(*) from run_groups where kind = 'broadcast') > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'deliver') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'deliver'
-- nothing: nothing was delivered
-- holds: A broadcast member that went on with its own progress was not given again what it had
--   consumed long before.
-- rule: A client of a broadcast group was delivered a message of a queue that it had consumed, with
--   all that it had been given of the queue before it, when it left in good order (an ok assign of
--   nothing, its last before it took the queue anew), or progress_ms before the last that is known
--   of it by then. A client whose progress does not outlive it takes another name at each start.
--   Without progress_ms only those that left in good order are judged, and nothing to which, or to
--   what stands before it, a reset may have sent the client back since it had consumed it.
-- source: RocketMQ LocalFileOffsetStore; promise G5
with shown as (
  select
    r.client_group, r.client, r.broker_group, r.topic, r.queue, r.offset, r.value, r.op, r.type,
    r.t_complete
  from reads r
  join run_groups g on r.client_group = g.client_group and g.kind = 'broadcast'
  where r.f = 'deliver' and r.offset is not null and r.broker_group is not null
),
steps as (
  select
    *,
    max(case when type = 'ok' then op end) over (
      partition by client_group, client, broker_group, topic, queue, offset order by op
      rows between unbounded preceding and 1 preceding
    ) as ok_op
  from shown
),
-- The first time that the client took the queue between consuming a message and being given it again.
again as (
  select
    s.client_group, s.client, s.broker_group, s.topic, s.queue, s.offset, s.value, s.op, s.ok_op,
    min(a.op) as assign_op
  from steps s
  join assignments a
    on s.client_group = a.client_group and s.client = a.client
    and s.broker_group = a.broker_group and s.topic = a.topic and s.queue = a.queue
    and a.op > s.ok_op and a.op < s.op
  where s.ok_op is not null
  group by
    s.client_group, s.client, s.broker_group, s.topic, s.queue, s.offset, s.value, s.op, s.ok_op
),
told as (
  select
    o.client_group, o.client, o.op, o.f, o.type,
    o.f = 'assign' and o.type = 'ok' and coalesce(size(o.assigned), 0) = 0 as leaves, o.t_invoke,
    coalesce(o.t_complete, o.t_invoke) as t_end
  from ops o
  join run_groups g on o.client_group = g.client_group and g.kind = 'broadcast'
),
pasts as (
  select
    op,
    max(case when f = 'assign' then op end) over told_before as last_assign,
    max(case when leaves then op end) over told_before as last_leave,
    max(case when leaves then t_invoke end) over told_before as t_left,
    max(t_end) over told_before as t_last
  from told
  window told_before as (
    partition by client_group, client order by op
    rows between unbounded preceding and 1 preceding
  )
),
cuts as (
  select
    a.*,
    case
      when p.last_leave = p.last_assign then p.t_left
      else p.t_last - g.progress_ns
    end as t_cut
  from again a
  join pasts p on a.assign_op = p.op
  join run_groups g on a.client_group = g.client_group
),
-- How much of the queue, up to the message, it had consumed by then without a gap.
firsts as (
  select client_group, client, broker_group, topic, queue, min(offset) as first_offset
  from shown
  group by client_group, client, broker_group, topic, queue
),
consumed as (
  select
    c.client_group, c.client, c.broker_group, c.topic, c.queue, c.offset, c.value, c.op, c.ok_op,
    c.assign_op, c.t_cut, count(distinct s.offset) as consumed
  from cuts c
  join shown s
    on c.client_group = s.client_group and c.client = s.client
    and c.broker_group = s.broker_group and c.topic = s.topic and c.queue = s.queue
    and s.type = 'ok' and s.offset <= c.offset and s.t_complete <= c.t_cut
  group by
    c.client_group, c.client, c.broker_group, c.topic, c.queue, c.offset, c.value, c.op, c.ok_op,
    c.assign_op, c.t_cut
),
-- A reset, or the client's seek, in between made it go back.
sent_back as (
  select c.op, c.offset
  from consumed c
  join ops o on c.ok_op = o.op
  join ops b on c.op = b.op
  join reset_spans r
    on c.client_group = r.client_group and coalesce(r.client = c.client, true)
    and c.broker_group = r.broker_group and c.topic = r.topic and c.queue = r.queue
  where r.t_invoke <= b.t_invoke and r.t_until >= o.t_invoke and coalesce(r.offset <= c.offset, true)
)
select
  c.client_group, c.client, c.broker_group, c.topic, c.queue, c.offset, c.value, c.op,
  c.ok_op as consumed_op, c.assign_op, c.t_cut
from consumed c
join firsts f
  on c.client_group = f.client_group and c.client = f.client and c.broker_group = f.broker_group
  and c.topic = f.topic and c.queue = f.queue
left anti join sent_back b on c.op = b.op and c.offset = b.offset
where c.consumed = c.offset - f.first_offset + 1
