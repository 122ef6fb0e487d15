-- How long nobody, or one client, was answered: per fault taken the time from the last ok write at or
-- before its effect to the first after it (to the end of the load where none came), the same of
-- reads (a poll that found nothing is one), and each client's longest time between two ok writes
-- within the load. The 64 longest.
with answers as (
  select client, t_complete as t,
    case when f in ('poll', 'deliver') then 'reads' else 'recovery' end as measure
  from ops
  where f in ('send', 'half', 'decide', 'poll', 'deliver')
    and type = 'ok' and t_complete is not null
),
line as (
  select
    measure, t, 0 as turn, cast(null as bigint) as fault, cast(null as string) as name,
    t as answered
  from answers
  union all
  select m.measure, coalesce(f.t_effect, f.t_start), 1, f.fault, f.name, null
  from faults f cross join (select distinct measure from answers) m
  where f.effect = 'taken'
),
around as (
  select
    measure, t, fault, name,
    max(answered) over (
      partition by measure
      order by t, turn, fault, name rows between unbounded preceding and current row
    ) as t_from,
    min(answered) over (
      partition by measure
      order by t desc, turn desc, fault, name rows between unbounded preceding and current row
    ) as t_to
  from line
),
recoveries as (
  select
    a.measure, concat_ws(' ', cast(a.fault as string), a.name) as name,
    coalesce(a.t_from, a.t) as t_from, coalesce(a.t_to, s.load_to, a.t) as t_to
  from around a cross join run_settings s
  where a.fault is not null
),
steps as (
  select
    a.client, a.t as t_to,
    lag(a.t) over (partition by a.client order by a.t) as t_from
  from answers a cross join run_settings s
  where a.measure = 'recovery' and (s.load_from is null or a.t between s.load_from and s.load_to)
),
gaps as (
  select
    'gap' as measure, client as name,
    min_by(t_from, struct(t_from - t_to, t_from)) as t_from,
    min_by(t_to, struct(t_from - t_to, t_from)) as t_to
  from steps
  where t_from is not null
  group by client
),
measured as (
  select * from recoveries union all select * from gaps
)
select measure, name, t_from, t_to, t_to - t_from as took_ns
from measured
order by measure desc, took_ns desc, name
limit 64
