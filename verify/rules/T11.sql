-- T11: producer and message disagree
-- promise: G4
-- needs: ops, log
-- applies: select bool_or(has_transactions) from run_settings
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: A producer's own outcome and its message agree.
-- rule: The outcome in the producer's own database is not what became of its message: committed there
--   and not stored, or rolled back there and stored. Only where the half was acknowledged and the
--   producer told its outcome; what nobody had decided by the run's end is open. A half whose topic
--   may have been deleted behind it goes with it: it need not be stored.
-- source: the purpose of transactional messages, end to end
with gone as (
  select distinct t.tx
  from transactions t
  join topic_changes c on t.broker_group = c.broker_group and t.topic = c.topic
  where c.f = 'delete_topic' and c.t_end >= t.half_invoked
)
select
  o.tx, value, `local`, t_commit, t_rollback, op_decisions, finals, first_final, discarded,
  case
    when finals = 0 and op_count = 0 and discarded is null then 'undecided at the end of the run'
  end as reason
from outcomes o
left join gone g on o.tx = g.tx
where `local` is not null and half_type = 'ok' and kept
  and (
    (`local` = 'commit' and finals = 0 and g.tx is null) or (`local` <> 'commit' and finals > 0)
    or (finals = 0 and op_count = 0 and discarded is null)
  )
