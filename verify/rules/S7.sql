-- S7: unsafe status told as ok
-- promise: G7
-- needs: ops
-- applies: select (select coalesce(sum(ops), 0) from op_counts where f in ('send', 'half')) > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f in ('send', 'half') and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: No send was called stored that its broker called unsafe.
-- rule: A send or half of type ok whose answer said that the message is not on a disk or on no other
--   replica: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE. Its outcome is unknown.
-- source: RocketMQ's SendStatus; the run format
select op, f, process, node, broker_group, topic, queue, status, transform(messages, m -> m.value) as `values`
from ops
where f in ('send', 'half') and type = 'ok'
  and status in ('FLUSH_DISK_TIMEOUT', 'FLUSH_SLAVE_TIMEOUT', 'SLAVE_NOT_AVAILABLE')
