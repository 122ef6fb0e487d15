-- A12: consumed twice
-- promise: G5
-- needs: ops
-- applies: select count(*) > 0 from run_groups
-- examined: select coalesce(sum(messages), 0) from op_counts
--   where f in ('poll', 'deliver') and type = 'ok'
-- nothing: no operation read anything
-- holds: No group consumed a message twice without a cause.
-- rule: A second ok read of a value by one group (broadcast: one client) with no cause. Causes: an
--   earlier read of it with fail or info, reconsume above 0, an assign of a member that names the
--   queue between the two, a reset of the queue for the group that may have come into force between
--   them (of which a member may hear up to 10 s after its answer), a deletion of the group with its
--   offsets between them, or a second reader whose last assign names the queue and is not the one
--   under which the first read was made. Each ok read is held against the one before it.
-- source: OpenChaos's consume counts
with consumed as (
  select
    r.client_group, case when g.kind = 'broadcast' then r.client end as member, r.value, r.op,
    r.place_in_op, r.type
  from reads r
  join run_groups g on r.client_group = g.client_group
  left anti join tried_twice t on r.value = t.value
  where r.value is not null and r.f <> 'pop'
),
several as (
  select client_group, member, value
  from consumed
  group by client_group, member, value
  having count_if(type = 'ok') > 1
),
steps as (
  select
    c.client_group, c.value, c.op, c.place_in_op, c.type,
    max(case when c.type = 'ok' then c.op end) over (
      partition by c.client_group, c.member, c.value order by c.op, c.place_in_op
      rows between unbounded preceding and 1 preceding
    ) as first_op,
    max(case when c.type <> 'ok' then c.op end) over (
      partition by c.client_group, c.member, c.value order by c.op, c.place_in_op
      rows between unbounded preceding and 1 preceding
    ) as asked_again
  from consumed c
  left semi join several s
    on c.client_group = s.client_group and c.member <=> s.member and c.value = s.value
),
repeats as (
  select
    s.client_group, s.value, s.op, s.place_in_op, r.process, r.t_complete,
    r.broker_group, r.topic, r.queue, r.offset,
    s.first_op, o.process as first_process, o.t_invoke as first_invoked
  from steps s
  join reads r on s.op = r.op and s.place_in_op = r.place_in_op
  join ops o on s.first_op = o.op
  where s.type = 'ok' and s.asked_again is null and coalesce(r.reconsume, 0) = 0
),
line as (
  select
    client_group, broker_group, topic, queue, t_invoke as at, 0 as is_repeat, op,
    cast(-1 as int) as place_in_op, t_until
  from assignments
  union all
  select client_group, broker_group, topic, queue, t_invoke, 0, op, cast(-1 as int), t_until
  from reset_spans
  union all
  -- Whoever takes a queue of a group that was deleted with its offsets begins anew.
  select
    q.client_group, q.broker_group, q.topic, q.queue, d.t_invoke, 0, d.op, cast(-1 as int),
    case when d.type = 'ok' then d.t_complete else cast(9223372036854775807 as bigint) end
  from (select distinct client_group, broker_group, topic, queue from repeats) q
  join ops d on q.client_group = d.client_group and q.broker_group = d.broker_group
  where d.f = 'delete_group' and d.type <> 'fail' and d.decision = 'clean'
  union all
  select
    client_group, broker_group, topic, queue, t_complete, 1, op, place_in_op, cast(null as bigint)
  from repeats
),
assigned as (
  select
    is_repeat, op, place_in_op,
    max(t_until) over (
      partition by client_group, broker_group, topic, queue
      order by at, is_repeat, op, place_in_op
      rows between unbounded preceding and current row
    ) as t_assigned
  from line
),
judged as (
  select
    p.*,
    a.t_assigned >= p.first_invoked as reassigned,
    n.op is not null and not (h.assign_op <=> f.assign_op) as under_another
  from repeats p
  join assigned a on p.op = a.op and p.place_in_op = a.place_in_op and a.is_repeat = 1
  left join held_under h on p.op = h.op
  left join held_under f on p.first_op = f.op
  left join (select distinct op, broker_group, topic, queue from assignments) n
    on h.assign_op = n.op and p.broker_group <=> n.broker_group and p.topic <=> n.topic
    and p.queue <=> n.queue
)
select
  client_group, value, op, place_in_op, process, t_complete, broker_group, topic, queue, offset,
  struct(first_op as op, first_process as process, first_invoked as t_invoke) as first
from judged
where not coalesce(reassigned, false) and not under_another
