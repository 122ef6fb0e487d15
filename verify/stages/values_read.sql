-- One row per value that was read: by which operation first, an ok one if there is one, and how
-- many at-least-once groups read it ok.
-- parts: value
select
  r.value,
  coalesce(min(r.ok_op), min(r.op)) as op,
  min(r.ok_op) is not null as was_ok,
  count(case when r.ok_op is not null then g.client_group end) as groups
from (
  select
    value, client_group, min(op) as op, min(case when type = 'ok' then op end) as ok_op
  from reads
  group by value, client_group
) r
left join run_groups g on r.client_group = g.client_group and g.at_least_once
group by r.value
