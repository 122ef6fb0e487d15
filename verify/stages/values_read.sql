-- One row per value that was read: by which operation first, an ok one if there is one, and which
-- groups that are to read all of their topics read it ok, as the bits of `at_least_once_groups`.
-- parts: value
select
  r.value,
  coalesce(min(r.ok_op), min(r.op)) as op,
  min(r.ok_op) is not null as was_ok,
  coalesce(bit_or(case when r.ok_op is not null then g.bit end), cast(0 as bigint)) as groups
from (
  select
    value, client_group, min(op) as op, min(case when type = 'ok' then op end) as ok_op
  from reads
  group by value, client_group
) r
left join at_least_once_groups g on r.client_group = g.client_group and g.is_told
group by r.value
