-- Acknowledgements of popped messages that did not fail, one row per message. `is_sure`: it was
-- answered while the message was certainly held by that very receipt, so that it counted; `pop_op`
-- is the pop that gave the receipt, or one that it replaced. `is_void`: another receipt had
-- replaced it before, that of a change (in order a receipt stays good) or that of a later pop.
with receipts as (
  select client_group, value, receipt, op as pop_op, is_ordered, t_sure, t_complete as t_given
  from pop_handouts
  union all
  select
    c.client_group, c.value, c.next_receipt, h.op, coalesce(g.ordered, false), c.t_sure,
    c.t_complete
  from pop_changes c
  left join run_groups g on c.client_group = g.client_group
  left join pop_handouts h
    on c.client_group = h.client_group and c.value = h.value and c.receipt = h.receipt
  where c.is_ok and c.next_receipt is not null
),
given as (
  select
    client_group, value, receipt, min(pop_op) as pop_op, bool_or(is_ordered) as is_ordered,
    min(t_sure) as t_sure, max(t_given) as t_given
  from receipts
  group by client_group, value, receipt
),
popped_again as (
  select n.client_group, n.value, n.receipt, min(h.t_complete) as t_popped_again
  from given n
  join pop_handouts h on n.client_group = h.client_group and n.value = h.value
  where h.t_invoke > n.t_given
  group by n.client_group, n.value, n.receipt
),
replaced as (
  select
    client_group, value, receipt, min(t_invoke) as t_touched,
    min(case when is_ok then t_complete end) as t_replaced
  from pop_changes
  group by client_group, value, receipt
)
select
  m.client_group, m.value, m.op, m.type = 'ok' as is_ok, m.t_invoke, m.t_complete,
  m.ref as receipt, m.process, m.broker_group, m.topic, m.queue, m.offset, n.pop_op,
  coalesce(n.is_ordered, false) as is_ordered,
  (not coalesce(n.is_ordered, false) and coalesce(r.t_replaced < m.t_invoke, false))
    or coalesce(a.t_popped_again < m.t_invoke, false) as is_void,
  m.type = 'ok' and coalesce(m.t_complete <= n.t_sure, false)
    and coalesce(r.t_touched > m.t_complete, true) as is_sure
from messages m
left join given n
  on m.client_group = n.client_group and m.value = n.value and m.ref = n.receipt
left join replaced r
  on m.client_group = r.client_group and m.value = r.value and m.ref = r.receipt
left join popped_again a
  on m.client_group = a.client_group and m.value = a.value and m.ref = a.receipt
where m.f = 'ack' and m.type <> 'fail' and m.value is not null
