-- Under which assign (ok or info) of its process for its group each poll and delivery was made: the last before
-- it, or where its process has none before it, of its client; null where there was none.
select op, coalesce(of_process, of_client) as assign_op
from (
  select
    op, f,
    max(case when f = 'assign' then op end) over (
      partition by process, client_group order by op
      rows between unbounded preceding and current row
    ) as of_process,
    max(case when f = 'assign' then op end) over (
      partition by client, client_group order by op
      rows between unbounded preceding and current row
    ) as of_client
  from ops
  where f in ('poll', 'deliver') or (f = 'assign' and type <> 'fail')
) told
where f <> 'assign'
