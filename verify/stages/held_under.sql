-- Under which assign (ok or info) of its process each poll and delivery was made: the last before
-- it, null where there was none.
select op, assign_op
from (
  select
    op, f,
    max(case when f = 'assign' then op end) over (
      partition by process order by op rows between unbounded preceding and current row
    ) as assign_op
  from ops
  where f in ('poll', 'deliver') or (f = 'assign' and type <> 'fail')
) told
where f <> 'assign'
