-- One row per value that was sent to be delivered later, of those not all of whose attempts failed:
-- `due`, the earliest time at which it may be delivered, and `due_latest`, the latest at which it
-- falls due (a broker counts a delay from when it gets it); `t_sent`, when it was first sent; `acked_op`, the first attempt that was
-- ok, null where none was; how often it was recalled, ok and with fail, by which operation first;
-- `t_recalled`, when the first ok recall was answered. `t_shown`: when it first could be
-- seen on a user topic, from the append of its record, a read of any outcome, or both; null where it
-- never was; `shown_by` is what tells; `logged` and `read_op` whether a record or a read does.
-- `first_index` is that of its first record there; `t_logged`, when that was appended: null where the
-- append of any such record is not told.
with sent as (
  select
    m.value,
    min(m.due) as due,
    max(m.due + coalesce(m.t_complete - m.t_invoke, cast(0 as bigint))) as due_latest,
    max(case when m.due is null then 1 else 0 end) = 1 as is_untold,
    count(*) as open_attempts,
    min(m.op) as sent_op,
    min(m.t_invoke) as t_sent,
    min(case when m.type = 'ok' then m.op end) as acked_op,
    min_by(
      struct(m.broker_group, m.topic, m.queue),
      struct(case when m.type = 'ok' then 0 else 1 end as later, m.op, m.place_in_op)
    ) as place
  from messages m
  where m.f = 'delay' and m.type <> 'fail' and m.value is not null
  group by m.value
),
recalled as (
  select
    ref as value,
    count(*) as recalls,
    count_if(type = 'ok') as recalls_ok,
    count_if(type = 'fail') as recalls_failed,
    min(op) as recall_op,
    min(case when type = 'ok' then op end) as recalled_op,
    min(case when type = 'ok' then t_complete end) as t_recalled
  from ops
  where f = 'recall' and ref is not null
  group by ref
),
told as (
  select
    r.named as value, a.t_append as t, r.index as index, cast(null as bigint) as op, r.node,
    r.broker_group, r.topic, r.queue, r.offset
  from records r
  left semi join sent s on r.named = s.value
  left join first_appends a
    on r.broker_group = a.broker_group and r.index = a.index and r.term = a.term
  where r.is_visible
  union all
  select
    r.value, r.t_complete, null, r.op, null, r.broker_group, r.topic, r.queue, r.offset
  from reads r left semi join sent s on r.value = s.value
  where coalesce(r.on_user_topic, true)
),
shown as (
  select
    value,
    min(t) as t_shown,
    min(index) as first_index,
    case when count_if(index is not null and t is null) = 0 then min(case when index is not null then t end) end as t_logged,
    min(op) as read_op,
    min_by(
      struct(broker_group, topic, queue, offset, node, op),
      struct(
        coalesce(t, cast(9223372036854775807 as bigint)) as t, coalesce(op, cast(-1 as bigint)) as op,
        coalesce(node, '') as node, coalesce(broker_group, '') as broker_group,
        coalesce(topic, '') as topic, coalesce(queue, cast(-1 as int)) as queue,
        coalesce(offset, cast(-1 as bigint)) as offset
      )
    ) as shown_by
  from told
  group by value
)
select
  s.value, s.due, s.due_latest, s.is_untold, s.open_attempts, s.sent_op, s.t_sent, s.acked_op, s.place,
  coalesce(r.recalls, cast(0 as bigint)) as recalls,
  coalesce(r.recalls_ok, cast(0 as bigint)) as recalls_ok,
  coalesce(r.recalls_failed, cast(0 as bigint)) as recalls_failed,
  r.recall_op, r.recalled_op, r.t_recalled,
  w.value is not null as was_shown, w.t_shown, w.first_index, w.t_logged, w.read_op, w.shown_by
from sent s
left join recalled r on s.value = r.value
left join shown w on s.value = w.value
