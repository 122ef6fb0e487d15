-- Changes of invisible times that did not fail, one row per message: of which receipt, which one
-- replaced it, and from when to when the message was then hidden, as for what was handed out. What
-- was not answered may have been done until the load's faults were over.
select
  m.client_group, m.value, m.op, m.type = 'ok' as is_ok, m.t_invoke, m.t_complete,
  m.process, m.ref as receipt, m.key as next_receipt, m.broker_group, m.topic, m.queue, m.offset,
  m.t_invoke + (m.due - m.t_invoke) div 10 * 9 - s.error_ns as t_sure,
  case
    when m.type = 'ok' then m.t_complete
    else greatest(coalesce(m.t_complete, m.t_invoke), s.heal_from)
  end + (m.due - m.t_invoke) div 10 * 11 + s.error_ns as t_over
from messages m cross join pop_settings s
where m.f = 'change' and m.type <> 'fail' and m.value is not null and m.due is not null
