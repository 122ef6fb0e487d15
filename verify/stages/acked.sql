-- What was acknowledged: sends that were ok, transactions whose commit was. `t_acked` is when,
-- the place as far as it is known. A value that was acknowledged twice has two rows.
select
  value, uniq_key, op, t_acked, broker_group, topic, queue, offset, tx
from (
  select
    value, uniq_key, op, t_complete as t_acked, broker_group, topic, queue, offset,
    cast(null as string) as tx
  from attempts
  where f = 'send' and type = 'ok'
  union all
  select
    value, uniq_key, op_commit_acked as op, t_commit_acked as t_acked, broker_group, topic, queue,
    cast(null as bigint) as offset, tx
  from transactions
  where t_commit_acked is not null and half_op is not null
) told
