-- T1: transaction visible early
-- promise: G4
-- needs: ops
-- wants: log, raft
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: No half message was visible before its commit.
-- rule: A transaction that is stored on a user topic, or was delivered, before anybody could have
--   decided to commit it, or though nobody ever did. Stored counts from the first append of its
--   entry, the answer to a check from its t_invoke; times count beyond the clocks' error.
-- source: transactional messages of RocketMQ; the run format
with seen as (
  select o.*, least(o.t_final, o.t_delivered) as t_seen, coalesce(s.clock_error_ns, cast(0 as bigint)) as clock_error_ns
  from outcomes o cross join run_settings s
  where o.finals > 0 or o.delivered is not null
)
select tx, t_seen, t_commit, t_rollback, t_commit_acked, finals, first_final, last_final, delivered
from seen
where t_commit is null or t_commit - t_seen > clock_error_ns
