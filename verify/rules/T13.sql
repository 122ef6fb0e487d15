-- T13: contrary decisions acknowledged
-- promise: G4
-- needs: ops
-- wants: log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'decide' and type = 'ok'
-- nothing: no decision was acknowledged
-- holds: An acknowledged decision was in force.
-- rule: A transaction of which a commit and a rollback were both acknowledged; or one whose rollback was
--   acknowledged, though its message is stored on a user topic.
-- source: promise G4: the first decision wins, a contrary one is refused
select
  tx, value, t_commit_acked, t_rollback_acked, op_commit_acked, finals, first_final, op_decisions,
  case
    when t_commit_acked is not null then 'both decisions were acknowledged'
    else 'a rollback was acknowledged, and the message is stored'
  end as problem
from outcomes
where t_rollback_acked is not null and (t_commit_acked is not null or finals > 0)
