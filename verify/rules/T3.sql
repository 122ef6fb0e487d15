-- T3: committed half lost
-- promise: G4
-- needs: ops, log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: Every committed transaction has its message.
-- rule: A commit was acknowledged to the producer, and no replica's committed log has the message.
--   One whose topic may have been deleted between its half and that acknowledgement need not be stored.
-- source: RocketMQ issue 544
with lost as (
  select
    tx, value, op_commit_acked, t_commit, t_commit_acked, t_rollback, op_decisions, first_op,
    discarded, delivered
  from outcomes
  where t_commit_acked is not null and finals = 0 and kept
),
gone as (
  select distinct l.tx
  from lost l
  join transactions t on l.tx = t.tx
  join topic_changes c on t.broker_group = c.broker_group and t.topic = c.topic
  where c.f = 'delete_topic' and c.t_end >= t.half_invoked and c.t_invoke <= t.t_commit_acked
)
select l.*
from lost l left anti join gone g on l.tx = g.tx
