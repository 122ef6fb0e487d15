-- Messages that sends and halves tried to have stored.
select
  op, place_in_op, process, client, client_group, f, type, t_invoke, t_complete, op_offset,
  broker_group, topic, queue, offset, value, uniq_key, digest, shard, seq, tx, on_user_topic
from messages
where f in ('send', 'half')
