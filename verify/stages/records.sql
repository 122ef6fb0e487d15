-- Committed records of all replicas (messages, halves, op records, finals), `offset` being that in
-- their queue. `named` is the value, or the uniq_key of a message that has none. `is_visible`:
-- consumers of user topics can be given it.
-- kept: of small runs
with told as (
  select
    broker_group, node, index, term, slot, chain, position, size, tag_hash, kind, topic, queue,
    queue_offset as offset, value, uniq_key, keys, digest, tx, decision, cq_ok,
    stored_ms,
    coalesce(value, uniq_key) as named
  from log
  where committed and kind in ('message', 'half', 'op', 'final')
)
select
  *,
  kind in ('message', 'final') and coalesce(not (
    startswith(topic, '%RETRY%') or startswith(topic, '%DLQ%')
    or startswith(topic, 'RMQ_SYS_') or startswith(topic, 'rmq_sys_')
    or endswith(topic, '_REPLY_TOPIC')
    or topic in ('SCHEDULE_TOPIC_XXXX', 'TRANS_CHECK_MAX_TIME_TOPIC')
  ), false) as is_visible
from told
