-- What the cluster carried before the first fault took effect (in the whole load where none did):
-- sends acknowledged, the time they had, and the nearest-rank percentiles of how long each took.
with began as (
  select
    s.load_from as t_from,
    coalesce(min(coalesce(f.t_effect, f.t_start)), min(s.load_to)) as t_to
  from run_settings s left join faults f on f.effect = 'taken'
  where s.load_from is not null
  group by s.load_from
),
sends as (
  select o.t_complete - o.t_invoke as took_ns, b.t_to - b.t_from as span_ns
  from ops o cross join began b
  where o.f = 'send' and o.type = 'ok' and o.t_complete between b.t_from and b.t_to
),
ranked as (
  select
    took_ns, span_ns,
    row_number() over (order by took_ns) as place,
    count(*) over () as sends
  from sends
)
select
  max(sends) as sends, max(span_ns) as span_ns,
  min(case when place >= 0.5 * sends then took_ns end) as p50_ns,
  min(case when place >= 0.99 * sends then took_ns end) as p99_ns
from ranked
