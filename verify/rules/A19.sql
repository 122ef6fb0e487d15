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
with first_stored as (
  select r.value, min(a.t_append) as t_append
  from records r
  left join first_appends a
    on r.broker_group = a.broker_group and r.index = a.index and r.term = a.term
  where r.kind in ('message', 'half') and r.value is not null
  group by r.value
),
found as (
  select v.value, v.sent_op, v.t_open as t_sent, d.t_append
  from values_sent v
  join first_stored d on v.value = d.value
  cross join run_settings s
  where v.t_open is null or d.t_append + coalesce(s.clock_error_ns, 0) < v.t_open
),
copies as (
  select r.value, r.broker_group, r.index, r.term, min(r.node) as node
  from records r left semi join found f on r.value = f.value
  where r.kind in ('message', 'half')
  group by r.value, r.broker_group, r.index, r.term
),
first_copies as (
  select
    value,
    min_by(struct(broker_group, node, index, term), struct(index, term, broker_group)) as record
  from copies
  group by value
)
select
  case when f.t_sent is null then 'all its attempts failed' else 'it was not sent yet' end as problem,
  f.value, f.sent_op, f.t_sent, f.t_append, c.record
from found f
join first_copies c on f.value = c.value
