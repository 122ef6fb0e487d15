-- C12: lock of a queue granted to two, or withheld
-- promise: G5
-- needs: ops
-- wants: faults
-- applies: select (select count(*) from run_groups where exclusive) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'lock') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f in ('lock', 'unlock')
-- nothing: no lock was requested
-- holds: The lock of a queue had one owner at a time, and was free once its owner had given it back.
-- rule: A lock was granted within half of its lease (lease_ms; 60 s where absent) of the request by
--   which another member had got or renewed it,
--   which had not begun to give it back since. Or a member was refused it twice, a second apart or
--   more, in a stretch without fault windows and 5 s behind its beginning, though for two seconds
--   nobody else could have it: each lock that was granted to others had been given back by an
--   answered unlock that was invoked behind it. A lock of unknown outcome, or one that took longer than a second to be refused,
--   is a grant that was never given back.
-- source: RocketMQ RebalanceLockManager, ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME
with locks as (
  select
    o.client_group, o.broker_group, o.topic, o.queue, o.op, o.client, o.f, o.type, o.status,
    o.t_invoke, o.t_complete, g.lease_ns
  from ops o
  join run_groups g on o.client_group = g.client_group and g.exclusive
  where o.f in ('lock', 'unlock') and o.broker_group is not null
),
grants as (
  select
    l.client_group, l.broker_group, l.topic, l.queue, l.op, l.client, l.type, l.t_invoke,
    l.t_complete, l.lease_ns,
    min(case when u.type <> 'fail' then u.t_invoke end) as t_giving,
    min(
      case when l.type = 'ok' and u.type = 'ok' and u.t_invoke >= l.t_complete then u.t_complete end
    ) as t_given_back
  from locks l
  left join locks u
    on u.f = 'unlock' and l.client_group = u.client_group and l.broker_group = u.broker_group
    and l.topic = u.topic and l.queue = u.queue and l.client = u.client
    and u.t_invoke >= l.t_invoke
  where l.f = 'lock' and (l.type <> 'fail' or l.t_complete - l.t_invoke > 1000000000)
  group by
    l.client_group, l.broker_group, l.topic, l.queue, l.op, l.client, l.type, l.t_invoke,
    l.t_complete, l.lease_ns
),
twice as (
  select
    b.client_group, b.broker_group, b.topic, b.queue, a.op as one_op, a.client as one_client,
    a.t_invoke as one_invoked, b.op as other_op, b.client as other_client,
    b.t_complete as other_told
  from grants b
  join grants a
    on a.client_group = b.client_group and a.broker_group = b.broker_group
    and a.topic = b.topic and a.queue = b.queue
  cross join run_settings s
  where a.client <> b.client and a.type = 'ok' and b.type = 'ok'
    and a.t_complete + coalesce(s.clock_error_ns, cast(0 as bigint)) < b.t_invoke
    and b.t_complete - a.t_invoke < a.lease_ns div 2 - coalesce(s.clock_error_ns, cast(0 as bigint))
    and coalesce(a.t_giving, cast(9223372036854775807 as bigint)) > b.t_complete
),
refused as (
  select r.client_group, r.broker_group, r.topic, r.queue, r.op, r.client, r.t_invoke, r.t_complete
  from locks r
  left semi join grants g
    on r.client_group = g.client_group and r.broker_group = g.broker_group
    and r.topic = g.topic and r.queue = g.queue and g.type = 'ok' and g.t_complete < r.t_invoke
  left anti join grants h
    on r.client_group = h.client_group and r.broker_group = h.broker_group
    and r.topic = h.topic and r.queue = h.queue and h.client <> r.client
    and h.t_invoke <= r.t_complete
    and coalesce(h.t_given_back, cast(9223372036854775807 as bigint)) > r.t_invoke - 2000000000
  where r.f = 'lock' and r.type = 'fail' and r.status = 'REFUSED'
    and r.t_complete - r.t_invoke <= 1000000000
),
withheld as (
  select
    r.client_group, r.broker_group, r.topic, r.queue, r.client, c.t_from,
    min(r.op) as first_op, max(r.op) as last_op, min(r.t_invoke) as t_first,
    max(r.t_invoke) as t_last, count(*) as refusals
  from refused r
  join calm_stretches c on r.t_invoke > c.t_from + 5000000000 and r.t_complete < c.t_to
  group by r.client_group, r.broker_group, r.topic, r.queue, r.client, c.t_from
  having max(r.t_invoke) - min(r.t_invoke) >= 1000000000
)
select
  client_group, broker_group, topic, queue, 'granted to two' as problem, other_op as op,
  other_client as client, other_told as t, one_op, one_client, one_invoked as t_before,
  cast(null as bigint) as refusals
from twice
union all
select
  client_group, broker_group, topic, queue, 'withheld from all', last_op, client, t_last, first_op,
  cast(null as string), t_first, refusals
from withheld
