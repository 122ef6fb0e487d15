-- The time outside of fault windows, as disjoint stretches without their ends; what lies before
-- the first fault and behind the last goes on for ever. A fault window is t_start to t_healed, or to the
-- run's end, of a fault that was taken or whose effect is not known, whatever it was aimed at.
with windows as (
  select
    fault, t_start, coalesce(t_healed, cast(4000000000000000000 as bigint)) as t_end
  from faults
  where effect in ('taken', 'unknown')
),
ordered as (
  select
    t_start, t_end,
    coalesce(
      max(t_end) over (
        order by t_start, t_end, fault rows between unbounded preceding and 1 preceding
      ),
      cast(-4000000000000000000 as bigint)
    ) as t_before
  from windows
)
select t_before as t_from, t_start as t_to from ordered where t_start > t_before
union all
select
  coalesce(max(t_end), cast(-4000000000000000000 as bigint)) as t_from,
  cast(4000000000000000000 as bigint) as t_to
from windows
having coalesce(max(t_end), cast(-4000000000000000000 as bigint)) < 4000000000000000000
