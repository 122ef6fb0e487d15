-- One row per message of an operation, with what the rules need of the operation. `op_offset` is
-- that of the operation, `place_in_op` counts from 0; a queue that the message does not tell is the
-- operation's. `on_user_topic`: its topic is one that users make; null where it is not known.
-- kept: no
with taken_apart as (
  select *, posexplode(messages) as (place_in_op, m) from ops
),
exploded as (
  select
    o.op, o.process, o.client, o.client_group, o.f, o.type, o.t_invoke, o.t_complete,
    o.offset as op_offset, o.key, o.decision, coalesce(o.final, false) as final, o.node, o.term,
    o.status, o.error, o.due, o.ref, o.from_ms, o.to_ms, place_in_op,
    m.value as value, m.uniq_key as uniq_key, m.keys as keys, m.offset as offset,
    coalesce(m.broker_group, o.broker_group) as broker_group,
    coalesce(m.topic, o.topic) as topic,
    coalesce(m.queue, o.queue) as queue,
    m.digest as digest, m.shard as shard, m.seq as seq, m.reconsume as reconsume, m.origin as origin,
    coalesce(m.tx, o.tx) as tx
  from taken_apart o
)
select
  *,
  not (
    startswith(topic, '%RETRY%') or startswith(topic, '%DLQ%')
    or startswith(topic, 'RMQ_SYS_') or startswith(topic, 'rmq_sys_')
    or endswith(topic, '_REPLY_TOPIC')
    or topic in ('SCHEDULE_TOPIC_XXXX', 'TRANS_CHECK_MAX_TIME_TOPIC')
  ) as on_user_topic
from exploded
