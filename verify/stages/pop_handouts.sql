-- Messages that ok pops handed out, one row each, with the receipt that they were given. Until
-- `t_sure` the message was certainly invisible to others if nothing changed that, and at `t_over`
-- it certainly no longer was: a tenth of the time asked for is left to the brokers' clocks.
-- `before_reset`: it ended before any reset of the group in that topic may have taken effect.
select
  m.client_group, m.value, m.op, m.place_in_op, m.process, m.t_invoke, m.t_complete,
  m.ref as receipt, m.broker_group, m.topic, m.queue, m.offset, m.reconsume,
  coalesce(g.ordered, false) as is_ordered,
  m.t_invoke + (m.due - m.t_invoke) div 10 * 9 - s.error_ns as t_sure,
  m.t_complete + (m.due - m.t_invoke) div 10 * 11 + s.error_ns as t_over,
  coalesce(m.t_complete < r.t_reset, true) as before_reset
from messages m
left join run_groups g on m.client_group = g.client_group
left join pop_resets r
  on m.client_group = r.client_group and m.broker_group = r.broker_group and m.topic = r.topic
cross join pop_settings s
where m.f = 'pop' and m.type = 'ok' and m.value is not null and m.due is not null
