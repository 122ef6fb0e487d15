-- P5: deliveries miscounted
-- promise: G5
-- needs: ops
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f = 'pop'
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'pop' and type = 'ok'
-- nothing: no pop showed a message
-- holds: Each time that a message came again, its count had risen by one.
-- rule: Ok pops of a group without order that show one value. Two with the same count; one with a
--   lower count than another that had ended before it was invoked; or a count above the number of pops
--   that can have shown the value before: ok ones that did, and unanswered ones of its broker group. Only pops that ended
--   before any reset of the group in the topic: behind it counts begin anew.
-- source: RocketMQ PopReviveService, reconsumeTimes
with counted as (
  select h.*
  from pop_handouts h
  left anti join tried_twice w on h.value = w.value
  where not h.is_ordered and h.before_reset and h.reconsume is not null
),
pairs as (
  select
    b.client_group, b.value, b.op, b.place_in_op, b.reconsume, a.op as other_op,
    a.reconsume as other_reconsume,
    case
      when a.reconsume = b.reconsume then 'the same count twice'
      when a.t_complete < b.t_invoke and a.reconsume > b.reconsume then 'the count fell'
    end as problem
  from counted b
  join counted a on a.client_group = b.client_group and a.value = b.value
  where a.op < b.op or (a.op = b.op and a.place_in_op < b.place_in_op)
),
before as (
  select
    b.client_group, b.value, b.op, b.place_in_op,
    count_if(a.t_invoke < b.t_complete) as deliveries
  from counted b
  -- One that tells no count is a delivery all the same.
  left join pop_handouts a
    on a.client_group = b.client_group and a.value = b.value and a.op <> b.op
  where b.reconsume > 0
  group by b.client_group, b.value, b.op, b.place_in_op
),
missing as (
  select b.*, f.deliveries
  from counted b join before f on b.op = f.op and b.place_in_op = f.place_in_op
  where b.reconsume > f.deliveries
),
asked as (
  select m.op, m.place_in_op, count(*) as unanswered
  from missing m
  join ops o on m.client_group = o.client_group
  where o.f = 'pop' and o.type = 'info' and o.t_invoke < m.t_complete
    and coalesce(o.broker_group = m.broker_group, true)
  group by m.op, m.place_in_op
)
select
  client_group, value, op, place_in_op, problem, reconsume, other_op, other_reconsume,
  cast(null as bigint) as deliveries, cast(null as bigint) as unanswered
from pairs
where problem is not null
union all
select
  m.client_group, m.value, m.op, m.place_in_op, 'the count is too high', m.reconsume, null, null,
  m.deliveries, coalesce(a.unanswered, cast(0 as bigint))
from missing m
left join asked a on m.op = a.op and m.place_in_op = a.place_in_op
where m.reconsume > m.deliveries + coalesce(a.unanswered, cast(0 as bigint))
