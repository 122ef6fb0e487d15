-- C16: reply acknowledged, and nobody took it
-- promise: G7
-- needs: ops
-- applies: select (select coalesce(sum(ops), 0) from op_counts where f = 'reply') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'reply' and type = 'ok'
-- nothing: no reply was acknowledged
-- holds: A reply that was acknowledged had been taken by the client that waited for it.
-- rule: An ok reply to a request that ended without an answer (info): it was sent when the requesting
--   client was gone (status GONE, from the request's t_complete on); or it was acknowledged before the
--   client, whose request the broker had acknowledged, gave up waiting for any (status NO_REPLY).
--   Each by more than the clocks may differ.
-- source: RocketMQ ReplyMessageProcessor, Broker2Client.callClient
with asked as (
  select value, min(op) as op, min(client) as client, min(status) as status, min(t_complete) as t_complete
  from messages
  where f = 'request' and value is not null
  group by value
  having count(*) = 1 and min(type) = 'info' and min(status) in ('GONE', 'NO_REPLY')
),
told as (
  select r.op, r.process, r.key, r.ref, r.t_invoke, r.t_complete, r.broker_group
  from ops r
  where r.f = 'reply' and r.type = 'ok' and r.key is not null
)
select
  a.value, a.op as request_op, a.client, a.t_complete as t_ended, r.op as reply_op, r.process,
  r.ref as answer, r.broker_group, r.t_invoke, r.t_complete,
  case when a.status = 'GONE' then 'the client was gone' else 'the client waited on' end as problem
from told r
join asked a on r.key = a.value
cross join run_settings s
where (a.status = 'GONE' and r.t_invoke > a.t_complete + coalesce(s.clock_error_ns, cast(0 as bigint)))
  or (a.status = 'NO_REPLY' and r.t_complete + coalesce(s.clock_error_ns, cast(0 as bigint)) < a.t_complete)
