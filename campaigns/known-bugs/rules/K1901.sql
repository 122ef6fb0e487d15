-- K1901: a request that nobody can answer
-- promise: none
-- needs: ops
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'request')
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'deliver'
-- nothing: nothing was delivered
-- holds: Whoever was delivered a request could make an answer to it.
-- rule: A request that got no answer in time, and each delivery of which ended with the client's
--   refusal to make one: the message lacks a property that every answer takes over. Answers that
--   were made and came too late are no matter of this rule.
-- source: RocketMQ issue 1901
with taken as (
  select
    m.value, min(m.op) as op, count(*) as deliveries,
    count_if(startswith(o.error, 'MessageRefusedError')) as unanswerable,
    min(o.error) as error
  from messages m
  join ops o on m.op = o.op
  where m.f = 'deliver' and m.ref is not null and m.value is not null
  group by m.value
)
select
  r.value, r.op as request_op, t.op as deliver_op, t.deliveries, t.error, r.t_invoke, r.t_complete
from messages r
join taken t on r.value = t.value
where r.f = 'request' and r.type <> 'ok' and t.deliveries = t.unanswerable
