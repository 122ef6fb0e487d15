-- K2133: deleting a topic took the decisions of transactions with it
-- promise: none
-- needs: ops, log, cq
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'delete_topic')
-- examined: select coalesce(sum(records), 0) from record_counts where committed and kind = 'op'
-- nothing: no decision was recorded
-- holds: The queue of decisions goes on where topics of others are deleted.
-- rule: Two committed records of decisions at one offset of their queue, or one without a unit in
--   its ConsumeQueue, from the first offset that is kept. Whose queue begins anew forgets what was
--   decided before, and asks about it once more.
-- source: RocketMQ issue 2133
with bounds as (
  select broker_group, topic, queue, coalesce(min_offset, cast(0 as bigint)) as bound
  from run_queues
)
select
  p.broker_group, p.node, p.topic, p.queue, p.offset, p.committed as records, p.units,
  p.position, p.unit_position
from unit_places p
left join bounds b on p.broker_group = b.broker_group and p.topic = b.topic and p.queue = b.queue
where p.topic = 'RMQ_SYS_TRANS_OP_HALF_TOPIC'
  and p.offset >= coalesce(b.bound, cast(0 as bigint))
  and (p.committed > 1 or (p.committed > 0 and p.units = 0))
