-- Delayed messages that were acknowledged, not recalled by any answer that was ok or is unknown, and
-- not read ok by a group that is to read all of their topic: one row per value, with the first such
-- group and how many there are; not those whose topic may have been deleted behind them, nor those
-- that fall due when the run is over. `lost`: nobody was shown it, and no committed log has it on a
-- user topic. `reason`: why that proves nothing.
with ended as (
  select
    greatest(
      load_to, heal_to, drain_to,
      (select max(coalesce(t_complete, t_invoke)) from ops)
    ) as run_end
  from run_settings
),
owed as (
  select d.*
  from delays d
  join ended e on d.due <= e.run_end
  left join first_index f on d.place.broker_group = f.broker_group
  left anti join topic_changes c
    on d.place.broker_group = c.broker_group and d.place.topic = c.topic
    and c.f = 'delete_topic' and c.t_end >= d.t_sent
  where d.acked_op is not null and d.recalls = d.recalls_failed
    -- Retention may have taken what was delivered and read where nobody tells.
    and coalesce(f.first_index, cast(1 as bigint)) <= 1
),
at_least_once as (
  select client_group, of_all_topics from run_groups where at_least_once
),
unread as (
  select o.value, min(g.client_group) as client_group, count(*) as groups
  from owed o
  cross join at_least_once g
  left join run_group_topics t on g.client_group = t.client_group and o.place.topic = t.topic
  left anti join (
    select r.value, r.client_group
    from reads r left semi join owed w on r.value = w.value
    where r.type = 'ok'
  ) k on o.value = k.value and g.client_group = k.client_group
  where g.of_all_topics or t.topic is not null
  group by o.value
),
drains as (
  select
    broker_group, topic, min(case when coalesce(was_drained, false) then 1 else 0 end) = 1 as topic_drained
  from queues
  group by broker_group, topic
)
select
  o.value, o.place.broker_group as broker_group, o.place.topic as topic, o.place.queue as queue,
  o.due, o.acked_op, o.recalls, o.recall_op, u.client_group, u.groups, not o.was_shown as lost,
  case
    when s.drain_from is null or o.due_latest + s.lost_ns > s.drain_from
      then 'it fell due too shortly before the end'
    when not coalesce(d.topic_drained, false)
      then concat(
        'not drained, so what is unread there proves nothing: ',
        concat_ws(' ', o.place.broker_group, o.place.topic)
      )
  end as reason
from owed o
cross join run_settings s
left join unread u on o.value = u.value
left join drains d on o.place.broker_group = d.broker_group and o.place.topic = d.topic
where not o.is_untold and (u.value is not null or not o.was_shown)
