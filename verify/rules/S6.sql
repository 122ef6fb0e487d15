-- S6: phantom read
-- promise: G1
-- needs: ops, log
-- examined: select coalesce(sum(messages), 0) from op_counts where f in ('poll', 'deliver', 'pop')
-- nothing: no operation read anything
-- holds: Nothing was delivered that the committed log does not hold.
-- rule: A message that was served, and that no replica's committed log has where it was read; where
--   the client hides the place (a retry), the value must be somewhere in a committed log. What was
--   read below its queue's floor is left out, where retention cut the logs also what was read of a
--   queue that run.json does not have; of a hidden place, what retention may have taken.
-- source: RocketMQ issue 8239
with served as (
  select
    broker_group, topic, queue, offset, value, min(op) as op,
    min_by(struct(process, f, type), struct(op, place_in_op)) as read,
    broker_group is not null and topic is not null and queue is not null and offset is not null as is_placed,
    coalesce(bool_or(on_user_topic), false) as on_user_topic
  from reads
  where value is not null
  group by broker_group, topic, queue, offset, value
),
absent as (
  select r.*
  from served r
  left anti join stored s
    on r.broker_group = s.broker_group and r.topic = s.topic and r.queue = s.queue
    and r.offset = s.offset and r.value = s.value
  left join queues q
    on r.broker_group = q.broker_group and r.topic = q.topic and r.queue = q.queue
  left join cut_groups c on r.broker_group = c.broker_group
  where r.is_placed
    and r.offset >= coalesce(q.floor, cast(0 as bigint))
    and (q.floor is not null or c.broker_group is null)
),
hidden as (
  select r.*
  from served r left anti join (select value from stored where is_message) s on r.value = s.value
  where not r.is_placed
),
-- A value whose place is known from elsewhere may be gone where all its places are below their
-- floors; any other, where its topic has a floor at all, or no queue that would tell of one.
known as (
  select
    p.value,
    bool_or(
      p.offset >= coalesce(q.floor, cast(0 as bigint))
      and (q.floor is not null or c.broker_group is null)
    ) as stands_above
  from places p
  left semi join hidden h on p.value = h.value
  left join queues q
    on p.broker_group = q.broker_group and p.topic = q.topic and p.queue = q.queue
  left join cut_groups c on p.broker_group = c.broker_group
  group by p.value
),
floored as (select distinct topic from queues where floor > 0),
listed as (select distinct topic from queues),
lost as (
  select h.*
  from hidden h
  left join known k on h.value = k.value
  left join floored f on h.topic = f.topic
  left join listed l on h.topic = l.topic
  where coalesce(
    k.stands_above,
    case
      when h.on_user_topic
        then f.topic is null and (l.topic is not null or (select count(*) from cut_groups) = 0)
      else (select count(*) from floored) = 0
    end
  )
)
select broker_group, topic, queue, offset, value, op, read from absent
union all
select broker_group, topic, queue, offset, value, op, read from lost
