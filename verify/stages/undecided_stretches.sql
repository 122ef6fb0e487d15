-- Stretches of time in which an undecided half had to be asked about or discarded: those that are
-- longer than the timeout and two check intervals, with what is left of them when the heal begins
-- counted anew. T6 takes out the time for which its clock stands. A half's time begins with its ack,
-- or when the time is over for which nobody was to be asked.
with allowed as (
  select
    timeout_ns + 2 * check_interval_ns as span, check_interval_ns,
    coalesce(heal_from, cast(9223372036854775807 as bigint)) as heal_from,
    greatest(
      load_to, heal_to, drain_to,
      (select max(coalesce(t_complete, t_invoke)) from ops)
    ) as run_end
  from run_settings
),
halves as (
  select
    a.tx, min(a.t_complete + coalesce(o.due - o.t_invoke, cast(0 as bigint))) as t_acked,
    min(a.broker_group) as broker_group, min(coalesce(a.client_group, '')) as client_group
  from attempts a join ops o on a.op = o.op
  where a.f = 'half' and a.type = 'ok' and a.tx is not null
  group by a.tx
),
-- An acknowledged decision ends it, and so does what the log has of it; without the time of that
-- nothing can be said.
undecided as (
  select
    h.tx, h.t_acked, coalesce(h.broker_group, '') as broker_group, h.client_group,
    least(o.t_settled, o.t_commit_acked, o.t_rollback_acked) as t_decided
  from halves h join outcomes o on h.tx = o.tx
  where o.kept and (o.settlements = 0 or o.t_settled is not null)
),
begins as (
  select tx, t_acked as at, 'its ack' as since from undecided
  union all
  select o.tx, o.t_invoke, 'a check'
  from ops o left semi join undecided u on o.tx = u.tx
  where o.f = 'check'
),
stretches as (
  select
    b.tx, u.broker_group, u.client_group, b.since, b.at as t_from,
    least(b.next_at, u.t_decided, a.run_end) as t_to, a.span, a.heal_from, a.check_interval_ns
  from (
    select tx, at, since, lead(at) over (partition by tx order by at, since) as next_at from begins
  ) b
  join undecided u on b.tx = u.tx
  cross join allowed a
)
select *
from (
  select tx, broker_group, client_group, since, t_from as begun, t_from, least(t_to, heal_from) as t_to, span, check_interval_ns
  from stretches
  union all
  select tx, broker_group, client_group, since, t_from, greatest(t_from, heal_from), t_to, span, check_interval_ns
  from stretches
) p
where t_to - t_from > span
