-- T7: asked about after its decision
-- promise: G4
-- needs: ops
-- wants: log
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'check') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: Nobody was asked about a transaction that was decided.
-- rule: The broker asks about a transaction later than one check interval after it acknowledged the
--   decision. Or the very node that acknowledged it to a client asks that client later: on their
--   connection the one comes behind the other. Only where both operations tell their node, and of
--   ledgermq: RocketMQ's broker checks beside what it is told. Not a transaction whose half may
--   stand at several places (sent again, no dedupe): a decision is on one of them.
-- source: RocketMQ issues 1517, 4436, 8158
with decided as (
  select
    t.tx, t.value, least(t.t_commit_acked, t.t_rollback_acked) as t_acked, t.t_last_check, t.checks
  from transactions t left anti join tried_twice w on t.value = w.value
),
late as (
  select
    d.tx, min(d.t_complete) as t_acked, max(c.t_invoke) as t_asked, min(c.op) as check_op,
    min(c.node) as node, count(distinct c.op) as checks_late
  from ops c
  join ops d
    on c.tx = d.tx and c.client = d.client and c.node = d.node and c.t_invoke > d.t_complete
  where c.f = 'check' and d.f = 'decide' and d.type = 'ok' and d.decision in ('commit', 'rollback')
  group by d.tx
)
select
  coalesce(d.tx, l.tx) as tx, d.value, d.t_acked, d.t_last_check, d.checks, l.node, l.check_op,
  l.t_asked
from decided d
left join late l on d.tx = l.tx
cross join run_settings s
where d.t_last_check - d.t_acked > s.check_interval_ns or (l.tx is not null and s.own_system)
