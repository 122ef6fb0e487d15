-- K4890: a search by time found an older message
-- promise: none
-- needs: ops, log
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'search')
--   and (select coalesce(sum(timed), 0) > 0 from record_counts where committed)
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'search' and type = 'ok'
-- nothing: no search was answered
-- holds: A search for the first message at a time or later found none that is older.
-- rule: An answer of such a search where a message stands that was stored before that time, and was
--   known before the question. M5 judges other searches, too, of which RocketMQ promises less: it
--   indexes times by the second, and only its later releases know a search for the last message.
-- source: RocketMQ issue 4890
with placed as (
  select broker_group, topic, queue, offset, min(stored_ms) as stored_ms
  from records
  where kind = 'message' and stored_ms is not null and offset is not null
  group by broker_group, topic, queue, offset
)
select
  o.op, o.broker_group, o.topic, o.queue, o.offset, o.from_ms as asked_ms, p.stored_ms, k.op as known_by
from ops o
join placed p
  on o.broker_group = p.broker_group and o.topic = p.topic and o.queue = p.queue and o.offset = p.offset
join known_ends k
  on o.broker_group = k.broker_group and o.topic = k.topic and o.queue = k.queue and o.offset = k.offset
where o.f = 'search' and o.type = 'ok' and o.ref = 'first' and p.stored_ms < o.from_ms
  and k.t_known < o.t_invoke
