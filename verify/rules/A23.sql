-- A23: stored in two broker groups
-- promise: G8
-- needs: ops
-- wants: log
-- applies: select (select count(distinct broker_group) > 1 from run_voters)
--   and (select coalesce(bool_or(own_system), false) from run_settings)
-- examined: select (select coalesce(sum(messages), 0) from op_counts where f in ('poll', 'deliver', 'pop'))
--   + (select coalesce(sum(records), 0) from record_counts where committed and kind in ('message', 'final'))
-- nothing: no operation read anything
-- holds: A send whose outcome a client does not know stays in its broker group.
-- rule: A value that was sent by one operation alone stands in user topics of two broker groups:
--   attempts of a client at one send went to another group, though one before them was stored.
-- source: promise of this project's client (docs/CLIENT.md); RocketMQ retryAnotherBrokerWhenNotStoreOK
with twice as (
  select
    value, min(broker_group) as one_group, max(broker_group) as other_group
  from standing
  where on_user_topic
  group by value
  having min(broker_group) <> max(broker_group)
)
select
  t.value, s.sent_op as op, t.one_group, t.other_group,
  array_sort(collect_set(struct(p.broker_group, p.topic, p.queue, p.offset))) as places
from twice t
join values_sent s on t.value = s.value and s.attempts = 1
join standing p on t.value = p.value and p.on_user_topic
group by t.value, s.sent_op, t.one_group, t.other_group
