-- A5: acknowledged but unseen
-- promise: G1
-- needs: ops
-- wants: log
-- examined: select coalesce(sum(case when f = 'send' then messages else ops end), 0) from op_counts
--   where f in ('send', 'decide', 'request') and type = 'ok'
-- nothing: nothing was acknowledged
-- holds: Every acknowledged message was read by each group that had to read all.
-- rule: Acknowledged, and never read ok by a group that is to read all of its topic. Acknowledged at or
--   beyond its queue's end and in no replica's committed log: lost, whoever read it. In a queue
--   that was not drained an unread value proves nothing, nor does it where no read was recorded; one
--   whose topic was deleted behind it, and is not there to be drained, is owed to nobody; one below
--   the offset of a reset of its queue is not owed to the group that was sent over it; a
--   transaction whose queue nobody tells may be in any of its topic's. What nobody at all read of a
--   queue that was drained is told as lost, too.
-- source: Jepsen's Kafka workload, unseen
with lost as (
  select distinct v.value
  from acked a
  join queues q on a.broker_group = q.broker_group and a.topic = q.topic and a.queue = q.queue
  join values_told v on a.value = v.value
  cross join (select coalesce(sum(records), 0) as records from record_counts) c
  where c.records > 0 and a.offset >= q.max_offset and v.logged_index is null
),
readers as (
  -- Which groups are to read a topic: of the topics that some group names.
  select n.topic, bit_or(g.bit) as groups
  from (select distinct topic from run_group_topics) n
  cross join at_least_once_groups g
  left join run_group_topics t on g.client_group = t.client_group and n.topic = t.topic
  where g.of_all_topics or t.topic is not null
  group by n.topic
),
behind as (
  select b.value, b.topic
  from (
    select
      v.value, v.acked_place.topic as topic, v.groups_that_read as groups,
      coalesce(
        r.groups, case when v.acked_place.topic is null then n.groups else n.of_all end,
        cast(0 as bigint)
      ) as owed
    from values_told v
    cross join (
      select bit_or(bit) as groups, bit_or(case when of_all_topics then bit end) as of_all
      from at_least_once_groups
    ) n
    left join readers r on v.acked_place.topic = r.topic
    where v.acked_op is not null
  ) b
  where (b.groups & b.owed) <> b.owed
),
unread as (
  select b.value, g.client_group
  from behind b cross join at_least_once_groups g
  left join run_group_topics t on g.client_group = t.client_group and b.topic = t.topic
  left anti join (
    select r.value, r.client_group
    from reads r left semi join behind b on r.value <=> b.value
    where r.type = 'ok'
  ) o on b.value <=> o.value and g.client_group = o.client_group
  where g.of_all_topics or t.topic is not null or b.topic is null
),
found as (
  select value, client_group from unread
  union all
  select l.value, cast(null as string) from lost l left anti join unread u on l.value = u.value
),
told as (
  select
    f.value, f.client_group, v.acked_op, v.acked_place, v.tx, l.value is not null as lost,
    coalesce(v.was_read, false) as was_read
  from found f
  join values_told v on f.value = v.value
  join (
    select distinct value, op from acked where coalesce(on_user_topic, true)
  ) a on v.value = a.value and v.acked_op = a.op
  left join lost l on f.value = l.value
),
stands as (
  select
    s.value,
    max_by(
      struct(s.broker_group, s.topic, s.queue, s.offset),
      struct(s.offset, coalesce(s.broker_group, '') as broker_group, s.topic, s.queue)
    ) as at,
    min(case when coalesce(q.was_drained, false) then 1 else 0 end) = 1 as place_drained,
    max(case when s.offset >= coalesce(q.floor, 0) then 1 else 0 end) = 1 as kept
  from standing s
  left semi join told t on s.value = t.value
  left join queues q
    on s.broker_group = q.broker_group and s.topic = q.topic and s.queue = q.queue
  where s.on_user_topic
  group by s.value
),
topics as (
  select
    broker_group, topic,
    min(case when coalesce(was_drained, false) then 1 else 0 end) = 1 as topic_drained
  from queues
  group by broker_group, topic
),
placed as (
  select
    t.value, t.client_group, t.acked_op, t.tx, t.lost, t.was_read,
    coalesce(s.at.broker_group, t.acked_place.broker_group) as broker_group,
    coalesce(s.at.topic, t.acked_place.topic) as topic,
    coalesce(s.at.queue, t.acked_place.queue) as queue,
    s.at.offset as offset,
    s.place_drained,
    coalesce(s.kept, true) as kept
  from told t left join stands s on t.value = s.value
),
-- Their topic may have been deleted behind them: that nobody could drain it leaves nothing open.
gone as (
  select distinct p.value
  from placed p
  join values_sent s on p.value = s.value
  join topic_changes c on p.broker_group = c.broker_group and p.topic = c.topic
  left anti join topics t on p.broker_group = t.broker_group and p.topic = t.topic
  where c.f = 'delete_topic' and c.t_end >= s.t_sent and not p.lost
)
select
  p.broker_group, p.topic, p.queue, p.offset, p.value, p.client_group, p.acked_op, p.tx,
  -- Nobody was shown it, though its queue was read to the end: what A4 calls lost is lost here too.
  p.lost or (not p.was_read and c.reads > 0 and coalesce(p.place_drained, t.topic_drained, false)) as lost,
  case
    when p.lost then null
    when not coalesce(p.place_drained, t.topic_drained, false)
      then concat(
        'not drained, so what is unread there proves nothing: ',
        concat_ws(' ', p.broker_group, p.topic, cast(p.queue as string))
      )
    when c.reads = 0 then 'no read was recorded, so nothing can be called unread'
  end as reason
from placed p
left join topics t on p.broker_group = t.broker_group and p.topic = t.topic
left anti join gone g on p.value = g.value
left anti join reset_spans r
  on p.client_group = r.client_group and p.topic = r.topic
  and coalesce(p.broker_group = r.broker_group, true) and coalesce(p.queue = r.queue, true)
  and coalesce(p.offset < r.offset, true) and not p.lost
cross join (
  select coalesce(sum(ops), 0) as reads
  from op_counts
  where f in ('poll', 'deliver', 'pop') and type = 'ok'
) c
where p.lost or p.kept
