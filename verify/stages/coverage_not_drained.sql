-- User queues that were not read to their end, so that what is unread there proves nothing.
select broker_group, topic, queue
from queues
where not was_drained and not (
  startswith(topic, '%RETRY%') or startswith(topic, '%DLQ%')
  or startswith(topic, 'RMQ_SYS_') or startswith(topic, 'rmq_sys_')
  or endswith(topic, '_REPLY_TOPIC')
  or topic in ('SCHEDULE_TOPIC_XXXX', 'TRANS_CHECK_MAX_TIME_TOPIC')
)
