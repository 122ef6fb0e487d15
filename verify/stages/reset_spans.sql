-- Within which time a group, or by a seek one member (`client`, null for all), may have gone on
-- elsewhere in a queue: members hear of a reset with a later pull, up to ten seconds behind its
-- answer; one of unknown outcome may come into force until the run's end. `offset`: from where on,
-- null where it was not told.
select
  op, client_group, case when by_member then client end as client, broker_group, topic, queue, offset,
  t_invoke, case when type = 'ok' then t_end + 10000000000 else t_end end as t_until
from group_resets
