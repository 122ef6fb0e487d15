-- The first reset of a group in a topic that may have taken effect, also under the name of the
-- topic in which the group's messages of it come again. It ends what the group holds of the topic,
-- and what it was handed out before may come again, counted anew.
with firsts as (
  select client_group, broker_group, topic, min(t_invoke) as t_reset
  from group_resets
  group by client_group, broker_group, topic
)
select * from firsts
union all
select client_group, broker_group, concat('%RETRY%', client_group, '_', topic), t_reset from firsts
