-- Faults by name and effect.
select name, effect, count(*) as faults from faults group by name, effect
