-- C11: answer to another request
-- promise: G7
-- needs: ops
-- applies: select (select coalesce(sum(ops), 0) from op_counts where f = 'request') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'request' and type = 'ok'
-- nothing: no request was answered
-- holds: Every answer was given to the request that got it, by a responder that had the request.
-- rule: An ok request with an answer that no delivery of the request names: that nobody gave, that was
--   given to another request, or that was given later than it came, by more than the clocks may
--   differ.
-- source: RocketMQ RequestFutureHolder; own rule
with asked as (
  select op, value, ref, t_complete
  from messages
  where f = 'request' and type = 'ok' and ref is not null and value is not null
),
given as (
  select op, value, ref, t_invoke
  from messages
  where f = 'deliver' and ref is not null
),
own as (
  select value, ref, min(t_invoke) as t_given from given group by value, ref
),
anybody as (
  select ref, min_by(struct(op, value), struct(op, coalesce(value, '') as value)) as answer_of
  from given
  group by ref
)
select
  case
    when o.t_given is not null then 'given later than it came'
    when n.ref is not null then 'given to another request'
    else 'nobody gave it'
  end as problem,
  a.value, a.op, a.ref as answer, a.t_complete, o.t_given, n.answer_of
from asked a
left join own o on a.value = o.value and a.ref = o.ref
left join anybody n on a.ref = n.ref
cross join run_settings s
where o.t_given is null
  or o.t_given > a.t_complete + coalesce(s.clock_error_ns, cast(0 as bigint))
