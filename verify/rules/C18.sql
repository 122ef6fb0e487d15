-- C18: shown as of another topic
-- promise: G5
-- needs: ops
-- applies: select coalesce(sum(origins), 0) > 0 from op_counts
-- examined: select coalesce(sum(origins), 0) from op_counts
-- nothing: no reader told of which topic a message was
-- holds: Whoever was shown a message was told the topic to which it had been sent.
-- rule: A message was shown as one of another topic than those to which its value was sent: when it
--   came again through a retry topic, too, and as a dead letter.
-- source: RocketMQ RETRY_TOPIC, DLQ_ORIGIN_TOPIC; NamespaceUtil
with shown as (
  select op, value, f, client_group, client, broker_group, topic, queue, offset, reconsume, origin
  from messages
  where f in ('poll', 'deliver', 'pop', 'query', 'search') and origin is not null
    and value is not null
),
sent as (select distinct value, topic from attempts where topic is not null),
known as (select distinct value from sent)
select
  s.value, s.op, s.f, s.client_group, s.client, s.origin, w.topics as sent_to, s.broker_group,
  s.topic, s.queue, s.offset, s.reconsume
from shown s
left semi join known k on s.value = k.value
left anti join sent t on s.value = t.value and s.origin = t.topic
join (
  select value, array_sort(collect_set(topic)) as topics from sent group by value
) w on s.value = w.value
