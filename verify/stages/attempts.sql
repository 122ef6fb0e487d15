-- Messages that sends, halves, delayed sends and requests tried to have stored.
select
  op, place_in_op, process, client, client_group, f, type, t_invoke, t_complete, op_offset,
  broker_group, topic, queue, offset, value, uniq_key, digest, shard, seq, tx, status, on_user_topic
from messages
where f in ('send', 'half', 'delay', 'request')
