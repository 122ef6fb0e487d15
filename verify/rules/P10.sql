-- P10: deleted while it was held
-- promise: G1
-- needs: ops, raft, log
-- reaches: yes
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'pop')
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'pop' and type = 'ok'
-- nothing: no pop showed a message
-- holds: Retention took no message that a group had popped and not acknowledged.
-- rule: A message that retention took (below its queue's min_offset), that was popped when what the
--   logs still have of its group had begun to be appended, by a group that never acknowledged it
--   since, and that the logs show neither as its retry nor as its dead letter: it was held from then
--   on. In order, all behind it in its queue are held with it.
-- source: RocketMQ PopReviveService; promise G1: what is not acknowledged comes again
with begun as (
  select f.broker_group, min(p.t_append) as t_append
  from first_index f
  join first_appends p on f.broker_group = p.broker_group and f.first_index = p.index
  where f.first_index > 1
  group by f.broker_group
),
lasts as (
  select
    h.client_group, h.value, max(h.op) as op, max(h.t_invoke) as t_invoke,
    max_by(
      struct(h.broker_group, h.topic, h.queue, h.offset, h.process), struct(h.t_invoke, h.op, h.place_in_op)
    ) as place
  from pop_handouts h
  where h.offset is not null and h.queue is not null
  group by h.client_group, h.value
),
taken as (
  select
    l.client_group, l.value, l.op, l.t_invoke, l.place.process, l.place.broker_group, l.place.topic,
    l.place.queue, l.place.offset, q.min_offset
  from lasts l
  join begun b on l.place.broker_group = b.broker_group and l.t_invoke > b.t_append
  join run_queues q
    on l.place.broker_group = q.broker_group and l.place.topic = q.topic and l.place.queue = q.queue
  where l.place.offset < q.min_offset
)
select t.*
from taken t
left anti join (select distinct client_group, value from pop_acks) k
  on t.client_group = k.client_group and t.value = k.value
-- What was stored of it since, for this group.
left anti join records r
  on t.value = r.named and t.broker_group = r.broker_group
  and (
    r.topic = concat('%DLQ%', t.client_group)
    or (startswith(r.topic, concat('%RETRY%', t.client_group, '_')) and (r.topic <> t.topic or r.offset > t.offset))
  )
left anti join (
  select distinct client_group from ops where f in ('reset', 'delete_group') and type <> 'fail'
) s
  on t.client_group = s.client_group
left anti join topic_changes c
  on t.broker_group = c.broker_group and c.f = 'delete_topic' and t.topic = c.topic
