-- T8: wrong number of checks
-- promise: G4
-- needs: ops, log
-- wants: raft, faults
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'check') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: Transactions were asked about as often as configured.
-- rule: A half that was asked about more often than configured, in a run without a fault
--   `duplicate-frames`, by which a question comes twice; or was discarded after fewer questions
--   than that, while no fault that took effect, or may have, overlapped the time from the half's
--   invoke to the first append of its discard, and nobody may have asked for that (`discard`); for
--   each client of its group whose last operation lies in that time one fewer, since a question may
--   have been sent to that client as it ended.
-- source: RocketMQ issue 8311
with counted as (
  select o.tx, o.value, o.checks, s.check_max, o.half_invoked, o.t_discarded, o.discarded, b.tx as by_hand
  from outcomes o cross join run_settings s
  left join (
    select distinct tx from ops where f = 'discard' and type <> 'fail' and tx is not null
  ) b on o.tx = b.tx
),
ends as (
  select e.tx, count(*) as clients
  from (
    select c.tx, c.half_invoked, c.t_discarded, o.client,
      max(coalesce(o.t_complete, o.t_invoke)) as t_last
    from counted c
    join (select distinct tx, client_group from ops where f = 'half') h on c.tx = h.tx
    join ops o on h.client_group = o.client_group
    where c.checks < c.check_max and c.t_discarded is not null
    group by c.tx, c.half_invoked, c.t_discarded, o.client
  ) e
  where e.t_last >= e.half_invoked and e.t_last <= e.t_discarded
  group by e.tx
),
-- The faults' windows, brought together where they overlap.
windows as (
  select t_start, coalesce(t_healed, cast(9223372036854775807 as bigint)) as t_end
  from faults
  where effect in ('taken', 'unknown')
),
-- The window that had begun last, and the latest end of all that had begun, by the discard.
timed as (
  select
    tx,
    max(t_end) over (order by at, turn, tx rows between unbounded preceding and 1 preceding) as window_end,
    turn
  from (
    select cast(null as string) as tx, t_start as at, 0 as turn, t_end from windows
    union all
    select c.tx, c.t_discarded, 1, null
    from counted c
    where c.checks < c.check_max and c.t_discarded is not null and c.half_invoked is not null
  ) at_times
)
select tx, 'asked too often' as problem, value, checks, half_invoked, discarded
from counted
where checks > check_max and (select count(*) from faults where name = 'duplicate-frames') = 0
union all
select c.tx, 'discarded too early', c.value, c.checks, c.half_invoked, c.discarded
from counted c
join timed t on c.tx = t.tx
left join ends e on c.tx = e.tx
where c.checks + coalesce(e.clients, cast(0 as bigint)) < c.check_max
  and t.turn = 1 and c.by_hand is null and coalesce(t.window_end, cast(-1 as bigint)) < c.half_invoked
  and (select bool_or(has_faults) from run_settings)
