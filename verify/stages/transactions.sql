-- One row per transaction: its first half (op, type, time, place, and the message that was sent),
-- and the decisions that were told, with their times. A `decide` that ended `fail` was refused and
-- is no decision; the answer to a check counts from its t_invoke and acknowledges nothing. `local`
-- is what the producer's own database did; `checks` and `t_last_check` how often, and when at last,
-- the broker asked. `half_op` is null where no half is told.
with told as (
  select
    coalesce(tx, case when f = 'half' and size(messages) > 0 then messages[0].tx end) as tx,
    f, type, op, t_invoke, t_complete, client_group, broker_group, topic, queue, offset, messages,
    decision,
    f in ('decide', 'check') and type <> 'fail' as is_decision,
    f = 'decide' and type = 'ok' as is_acked
  from ops
  where f in ('half', 'local', 'decide', 'check')
),
grouped as (
  select
    tx,
    min(case when f = 'half' then op end) as half_op,
    min_by(struct(type, t_invoke, t_complete, client_group, broker_group, topic, queue, offset), op)
      filter (where f = 'half') as half,
    min_by(messages, op) filter (where f = 'half') as half_messages,
    count_if(f = 'half' and type = 'ok') as halves_acked,
    min(case when is_decision and decision = 'commit' then t_invoke end) as t_commit,
    min(case when is_decision and decision = 'rollback' then t_invoke end) as t_rollback,
    min(case when is_acked and decision = 'commit' then t_complete end) as t_commit_acked,
    min(case when is_acked and decision = 'rollback' then t_complete end) as t_rollback_acked,
    min(case when is_decision and decision in ('commit', 'rollback') then op end) as op_decided,
    min(case when is_acked and decision = 'commit' then op end) as op_commit_acked,
    min(case when f = 'local' and type = 'ok' and decision in ('commit', 'rollback') then decision end) as local,
    count_if(f = 'check') as checks,
    max(case when f = 'check' then t_invoke end) as t_last_check
  from told
  where tx is not null
  group by tx
)
select
  tx, half_op, half.type as half_type, half.t_invoke as half_invoked, half.t_complete as half_completed,
  half.client_group as half_client_group, half.broker_group as half_broker_group,
  half.topic as half_topic, half.queue as half_queue, half.offset as half_told_offset, halves_acked,
  case when size(half_messages) > 0 then half_messages[0].value end as value,
  case when size(half_messages) > 0 then half_messages[0].uniq_key end as uniq_key,
  coalesce(case when size(half_messages) > 0 then half_messages[0].broker_group end, half.broker_group) as broker_group,
  coalesce(case when size(half_messages) > 0 then half_messages[0].topic end, half.topic) as topic,
  coalesce(case when size(half_messages) > 0 then half_messages[0].queue end, half.queue) as queue,
  case when size(half_messages) > 0 then half_messages[0].digest end as digest,
  t_commit, t_rollback, t_commit_acked, t_rollback_acked, op_decided, op_commit_acked, local,
  checks, t_last_check
from grouped
