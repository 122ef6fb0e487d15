-- A24: acknowledged and in no log
-- promise: G1
-- needs: ops, log
-- engines: async, sync
-- examined: select coalesce(sum(ops), 0) from op_counts where f in ('send', 'decide') and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: Every acknowledged message stands in its broker group's committed log.
-- rule: A value that was acknowledged, as a send or by the commit of its transaction, and stands in no
--   committed log. Broker groups whose logs begin behind their first entry are left out.
-- source: RocketMQ SYNC_MASTER; decision 28; promise G1
select
  a.value, a.op, a.tx, a.t_acked, a.place.broker_group as broker_group, a.place.topic as topic,
  a.place.queue as queue, a.place.offset as offset
from values_acked a
left anti join values_logged l on a.value = l.value
left anti join first_index f
  on a.place.broker_group = f.broker_group and f.first_index > 1
