-- P1: popped while invisible
-- promise: G5
-- needs: ops
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'pop'
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'pop' and type = 'ok'
-- nothing: no pop showed a message
-- holds: No message was handed out to a group again while it was invisible.
-- rule: Two ok pops of one group that show one value, and neither can have come after the other: the
--   one that is behind ended before the time of the one ahead was over, as the last change that was
--   answered or any that may have been carried out has it, and nothing acknowledged the message
--   before. A tenth of each time is left to the brokers' clocks. Only pops that ended before any
--   reset of the group in the topic: it ends what the group holds.
-- source: RocketMQ PopMessageProcessor; the run format, pop
with several as (
  select h.*
  from pop_handouts h
  left semi join (
    select client_group, value from pop_handouts group by client_group, value having count(*) > 1
  ) t on h.client_group = t.client_group and h.value = t.value
  left anti join tried_twice w on h.value = w.value
  where h.before_reset
),
orders as (
  select
    a.client_group, a.value, a.op as first_op, a.place_in_op as first_place, b.op as second_op,
    b.place_in_op as second_place, a.receipt, a.t_invoke, a.t_sure,
    b.t_invoke as second_invoked, b.t_complete as second_completed,
    not a.is_ordered and coalesce(a.reconsume > b.reconsume, false) as is_reverse
  from several a
  join several b on a.client_group = b.client_group and a.value = b.value
  where a.op <> b.op or a.place_in_op <> b.place_in_op
),
changed as (
  select
    o.first_op, o.first_place, o.second_op, o.second_place, min(c.t_sure) as t_sure,
    bool_or(c.is_ok and c.receipt = o.receipt and c.t_complete < o.second_invoked) as is_replaced
  from orders o
  join pop_changes c on o.client_group = c.client_group and o.value = c.value
  where c.t_invoke >= o.t_invoke and c.t_invoke < o.second_completed
  group by o.first_op, o.first_place, o.second_op, o.second_place
),
ended as (
  select distinct o.first_op, o.first_place, o.second_op, o.second_place
  from orders o
  join pop_acks k on o.client_group = k.client_group and o.value = k.value
  where not k.is_void and coalesce(k.pop_op = o.first_op, true) and k.t_invoke < o.second_completed
),
judged as (
  select
    o.*,
    case
      when c.is_replaced then c.t_sure
      else least(o.t_sure, coalesce(c.t_sure, o.t_sure))
    end as invisible_until,
    e.first_op is not null as is_ended
  from orders o
  left join changed c
    on o.first_op = c.first_op and o.first_place = c.first_place and o.second_op = c.second_op
    and o.second_place = c.second_place
  left join ended e
    on o.first_op = e.first_op and o.first_place = e.first_place and o.second_op = e.second_op
    and o.second_place = e.second_place
),
impossible as (
  select * from judged
  where is_reverse or (not is_ended and second_completed < invisible_until)
)
select
  x.client_group, x.value, x.first_op, x.first_place, x.second_op, x.second_place,
  a.process as first_process, b.process as second_process, x.invisible_until, x.second_completed,
  struct(a.broker_group, a.topic, a.queue, a.offset, a.reconsume) as first_at,
  struct(b.broker_group, b.topic, b.queue, b.offset, b.reconsume) as second_at
from impossible x
join impossible y
  on x.first_op = y.second_op and x.first_place = y.second_place and x.second_op = y.first_op
  and x.second_place = y.first_place
join several a on x.first_op = a.op and x.first_place = a.place_in_op
join several b on x.second_op = b.op and x.second_place = b.place_in_op
where x.first_op < x.second_op or (x.first_op = x.second_op and x.first_place < x.second_place)
