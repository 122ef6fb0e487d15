-- Every place and the values that stand there, once, however many tell it: `op` is the first
-- operation that did, `node` the first replica whose log has it. A value stands there twice where
-- its tellers disagree about its uniq_key.
-- parts: value
select
  broker_group, topic, queue, offset, value, uniq_key,
  min(op) as op,
  min(node) as node,
  bool_or(was_read) as was_read,
  bool_or(on_user_topic) as on_user_topic
from places
group by broker_group, topic, queue, offset, value, uniq_key
