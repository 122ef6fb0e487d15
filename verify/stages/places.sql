-- L_k: every place where a value is known to stand, and who says so: reads of any outcome; sends
-- that must have committed; committed records of user topics. `rank` orders the tellers.
with told as (
  select
    broker_group, topic, queue, offset, value, uniq_key, f as source, op,
    cast(null as string) as node, type = 'ok' as was_read, on_user_topic
  from reads
  union all
  select
    a.broker_group, a.topic, a.queue, a.offset, a.value, a.uniq_key, a.f as source, a.op,
    cast(null as string) as node, false as was_read, a.on_user_topic
  from attempts a left semi join must_have_committed c on a.op = c.op
  where a.f = 'send'
  union all
  select
    broker_group, topic, queue, offset, named as value, uniq_key, 'log' as source,
    cast(null as bigint) as op, node, false as was_read, true as on_user_topic
  from records
  where is_visible
)
select * from told where offset is not null and queue is not null and value is not null
