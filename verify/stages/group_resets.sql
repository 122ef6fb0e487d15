-- Resets of groups' offsets that may have taken effect; `t_end` never comes where the outcome is
-- unknown, `offset` is null where it was not told. `by_member`: a member went elsewhere by itself
-- (a seek); else an administrator sent the group there.
select
  o.op, o.process, o.client, o.client_group, o.broker_group, o.topic, o.queue, o.offset, o.type,
  o.t_invoke, o.t_complete,
  case when o.type = 'ok' then o.t_complete else cast(9223372036854775807 as bigint) end as t_end,
  m.client is not null as by_member
from ops o
left join (
  select distinct client, client_group from ops where f in ('deliver', 'poll', 'assign')
) m on o.client = m.client and o.client_group = m.client_group
where o.f = 'reset' and o.type <> 'fail'
