-- P7: receipt of nobody
-- promise: G8
-- needs: ops
-- applies: select coalesce(sum(ops), 0) > 0 from op_counts where f in ('ack', 'change')
-- examined: select coalesce(sum(messages), 0) from op_counts where f in ('ack', 'change')
-- nothing: nothing that was popped was acknowledged
-- holds: Only what had been popped was acknowledged.
-- rule: An ack or a change, of any outcome, of a message by a receipt that no ok pop or change of its
--   group had given for that message when it was invoked.
-- source: own rule
with given as (
  select client_group, value, receipt, min(t_given) as t_given
  from (
    select client_group, value, ref as receipt, t_complete as t_given
    from messages
    where f = 'pop' and type = 'ok'
    union all
    select client_group, value, key, t_complete from messages where f = 'change' and type = 'ok'
  ) told
  group by client_group, value, receipt
)
select
  m.client_group, m.value, m.op, m.place_in_op, m.f, m.type, m.process, m.ref as receipt, m.t_invoke,
  g.t_given
from messages m
left join given g
  -- What was popped without a value (A11) is acknowledged without one.
  on m.client_group = g.client_group and m.value <=> g.value and m.ref = g.receipt
where m.f in ('ack', 'change') and coalesce(g.t_given > m.t_invoke, true)
