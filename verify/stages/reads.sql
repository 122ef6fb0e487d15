-- Messages that polls, deliveries and pops showed.
select
  op, place_in_op, process, client, client_group, f, type, t_invoke, t_complete, broker_group, topic,
  queue, offset, value, uniq_key, digest, reconsume, on_user_topic
from messages
where f in ('poll', 'deliver', 'pop')
