-- A16: unavailability
-- promise: G8
-- needs: ops, faults
-- listed: select has_limits from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts
--   where f in ('send', 'half', 'decide') and type = 'ok'
-- nothing: no write was acknowledged
-- holds: The cluster acknowledged again within the time allowed.
-- rule: Writes (send, half, decide) against the run's limits: two ok answers of one client further
--   apart than gap_ms while the load runs; the first ok send to a broker group from the effect of a
--   fault on, answered more than rto_ms after it; the share of sends outside of fault windows that
--   were ok. Sends with a ref may be refused by right, and are left out. What several faults waited
--   for is one finding. A run without a fault, or without a
--   write acknowledged after the last one healed, shows nothing of recovery.
-- source: Redpanda's availability measure
with writes as (
  select op, client, f, type, broker_group, t_invoke, t_complete
  from ops
  where f in ('send', 'half', 'decide') and not (f = 'send' and ref is not null)
),
answers as (
  select w.client, w.t_complete as t
  from writes w cross join run_settings s
  where w.type = 'ok' and w.t_complete between s.load_from and s.load_to
),
lives as (
  select
    o.client,
    min(o.t_invoke) as t_first,
    max(greatest(o.t_invoke, coalesce(o.t_complete, o.t_invoke))) as t_last
  from ops o left semi join writes w on o.client = w.client
  group by o.client
),
points as (
  select client, t from answers
  union all
  select l.client, s.load_from
  from lives l cross join run_settings s
  where abs(l.t_first - s.load_from) <= s.gap_ns
  union all
  select l.client, s.load_to
  from lives l cross join run_settings s
  where abs(l.t_last - s.load_to) <= s.gap_ns
),
gaps as (
  select
    client, t as t_to,
    max(t) over (partition by client order by t rows between unbounded preceding and 1 preceding) as t_from
  from points
),
sent_groups as (
  select distinct broker_group from writes where f = 'send' and broker_group is not null
),
effects as (
  select f.fault, f.name, g.broker_group, f.t_effect
  from faults f cross join run_settings s cross join sent_groups g
  where f.effect = 'taken' and f.t_effect between s.load_from and s.load_to
),
line as (
  select broker_group, t_invoke as at, t_invoke as t_sent, cast(null as bigint) as fault
  from writes
  where f = 'send' and type = 'ok' and broker_group is not null and t_complete is not null
  union all
  select broker_group, t_effect, null, fault from effects
),
next as (
  select
    broker_group, fault,
    min(t_sent) over (
      partition by broker_group order by at desc
      range between unbounded preceding and current row
    ) as t_sent
  from line
),
answered as (
  select
    e.fault, e.name, e.broker_group, e.t_effect, min(w.op) as op,
    coalesce(min_by(w.t_complete, w.op), max(s.load_to)) as t_to
  from effects e
  join next n on e.fault = n.fault and e.broker_group = n.broker_group
  cross join run_settings s
  left join writes w
    on n.broker_group = w.broker_group and n.t_sent = w.t_invoke and w.f = 'send'
    and w.type = 'ok' and w.t_complete is not null
  group by e.fault, e.name, e.broker_group, e.t_effect
),
recoveries as (
  select
    broker_group, t_to, min(t_effect) as t_effect,
    min_by(struct(fault, name), struct(t_effect, fault)) as first_fault
  from answered
  group by broker_group, op, t_to
),
calm_line as (
  select
    t_from as at, 0 as is_send, t_from, t_to,
    cast(null as string) as type, cast(null as bigint) as op
  from calm_stretches
  union all
  select t_invoke, 1, null, null, type, op from writes where f = 'send'
),
calm_sends as (
  select
    is_send, type, at,
    max(t_from) over (
      order by at, is_send, op rows between unbounded preceding and current row
    ) as t_from,
    max(t_to) over (
      order by at, is_send, op rows between unbounded preceding and current row
    ) as t_to
  from calm_line
),
share as (
  select count(*) as sends, count_if(type = 'ok') as acked
  from calm_sends
  where is_send = 1 and at > t_from and at < t_to
),
broken as (
  select
    'gap' as measure, cast(null as string) as broker_group, g.client as name, g.t_from, g.t_to,
    s.gap_ns as limit_ns, cast(null as bigint) as sends, cast(null as bigint) as acked
  from gaps g cross join run_settings s
  where g.t_to - g.t_from > s.gap_ns
  union all
  select
    'recovery', r.broker_group, concat_ws(' ', cast(r.first_fault.fault as string), r.first_fault.name), r.t_effect, r.t_to,
    s.rto_ns, null, null
  from recoveries r cross join run_settings s
  where r.t_to - r.t_effect > s.rto_ns
  union all
  select 'share', null, null, null, null, null, h.sends, h.acked
  from share h cross join run_settings s
  where h.sends > 0
    and cast(h.acked as double) / cast(h.sends as double) < s.acked_share_min
),
healed as (
  select count(*) as faults, max(t_healed) as t_healed from faults where effect = 'taken'
),
shown as (
  select count(*) as writes
  from writes w cross join healed h
  where w.type = 'ok' and w.t_complete > h.t_healed
)
select *, cast(null as string) as reason from broken
union all
select
  'recovery', null, null, null, null, null, null, null,
  case
    when h.faults = 0 then 'no fault was taken, so nothing shows that the system recovers'
    else 'no write was acknowledged after the last fault had healed, so nothing shows that the system recovered'
  end
from healed h cross join shown n cross join run_settings s
where h.faults = 0 or n.writes = 0
