-- One row per queue that an assign (ok or info) names. `t_until`: when at the latest it came into
-- force; one of unknown outcome is open until the run's end.
select
  o.op, o.process, o.client, o.client_group, o.type, o.t_invoke, o.t_complete,
  case when o.type = 'ok' then o.t_complete else cast(9223372036854775807 as bigint) end as t_until,
  owned.broker_group as broker_group, owned.topic as topic, owned.queue as queue
from (
  select *, explode(assigned) as owned from ops where f = 'assign' and type <> 'fail'
) o
