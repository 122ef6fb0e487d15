-- What was acknowledged: sends that were ok, transactions whose commit was, requests that were
-- answered, or stored without an answer. `t_acked` is when,
-- the place as far as it is known; `on_user_topic` is null where no topic is told. A value that was
-- acknowledged twice has two rows.
select
  value, uniq_key, op, t_acked, broker_group, topic, queue, offset, tx,
  not (
    startswith(topic, '%RETRY%') or startswith(topic, '%DLQ%')
    or startswith(topic, 'RMQ_SYS_') or startswith(topic, 'rmq_sys_')
    or endswith(topic, '_REPLY_TOPIC')
    or topic in ('SCHEDULE_TOPIC_XXXX', 'TRANS_CHECK_MAX_TIME_TOPIC')
  ) as on_user_topic
from (
  select
    value, uniq_key, op, t_complete as t_acked, broker_group, topic, queue, offset,
    cast(null as string) as tx
  from attempts
  where (f = 'send' and type = 'ok')
    or (f = 'request' and t_complete is not null and (type = 'ok' or status = 'NO_REPLY'))
  union all
  select
    value, uniq_key, op_commit_acked as op, t_commit_acked as t_acked, broker_group, topic, queue,
    cast(null as bigint) as offset, tx
  from transactions
  where t_commit_acked is not null and half_op is not null
) told
