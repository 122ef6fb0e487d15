-- How many operations overlap a fault that took effect, from its effect until it was healed.
with windows as (
  select coalesce(t_effect, t_start) as t_from, coalesce(t_healed, t_heal) as t_to
  from faults
  where effect = 'taken'
)
select count(*) as ops
from ops o left semi join windows w
  on (w.t_to is null or o.t_invoke <= w.t_to)
  and (o.t_complete is null or o.t_complete >= w.t_from)
