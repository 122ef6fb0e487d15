-- A19: stored though it failed
-- promise: G7
-- needs: ops, log
-- wants: raft
-- examined: select coalesce(sum(messages), 0) from op_counts
--   where f in ('send', 'half', 'delay', 'request')
-- nothing: nothing was sent
-- holds: What was told as failed is not stored, and nothing was stored before it was sent.
-- rule: A value all of whose attempts ended fail, and a committed message or half of it. Or one whose
--   first record was appended before its first attempt that did not fail had been invoked.
-- source: the run format, A19; promise G7
with tried as (
  select value, min(op) as sent_op, min(case when type <> 'fail' then t_invoke end) as t_sent
  from attempts
  where value is not null
  group by value
),
stored as (
  select value, broker_group, index, term, min(node) as node
  from records
  where kind in ('message', 'half') and value is not null
  group by value, broker_group, index, term
),
timed as (
  select
    s.value, min(a.t_append) as t_append,
    min_by(
      struct(s.broker_group, s.node, s.index, s.term), struct(s.index, s.term, s.broker_group)
    ) as record
  from stored s
  left join first_appends a
    on s.broker_group = a.broker_group and s.index = a.index and s.term = a.term
  group by s.value
)
select
  case when t.t_sent is null then 'all its attempts failed' else 'it was not sent yet' end as problem,
  t.value, t.sent_op, t.t_sent, d.t_append, d.record
from tried t
join timed d on t.value = d.value
cross join run_settings s
where t.t_sent is null or d.t_append + coalesce(s.clock_error_ns, 0) < t.t_sent
