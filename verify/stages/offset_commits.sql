-- Commits of the listed groups' offsets that may have been stored. `t_end` never comes where the
-- outcome is unknown: such a commit may take effect at any time. One that rode on a poll is never
-- answered, whatever became of the poll.
select
  o.client_group, o.broker_group, o.topic, o.queue, o.offset, o.op, o.t_invoke,
  o.type = 'ok' as is_acked,
  case when o.type = 'ok' then o.t_complete else cast(9223372036854775807 as bigint) end as t_end
from ops o left semi join run_groups g on o.client_group = g.client_group
where o.f = 'commit_offset' and o.type <> 'fail'
union all
select
  o.client_group, o.broker_group, o.topic, o.queue, o.commit_offset, o.op, o.t_invoke, false,
  cast(9223372036854775807 as bigint)
from ops o left semi join run_groups g on o.client_group = g.client_group
where o.f = 'poll' and o.commit_offset is not null
