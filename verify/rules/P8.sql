-- P8: POP answered before it was committed
-- promise: G5
-- needs: ops, raft, log
-- reaches: yes
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'pop')
--   and (select coalesce(sum(records), 0) > 0 from record_counts
--     where committed and kind in ('pop', 'ack', 'change'))
--   and ((select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--     or (select count(*) > 0 from event_counts where event = 'commit'))
-- examined: select coalesce(sum(messages), 0) from op_counts
--   where f in ('pop', 'ack', 'change') and type = 'ok'
-- nothing: no pop showed a message
-- holds: No pop, acknowledgement or change of a time was answered before a majority had it.
-- rule: A message of an ok pop, of a sure ack or of an ok change that stands in an entry of that kind
--   which the first node of the group to commit it committed later than the answer came, by more than
--   the clocks may differ. The entry is the first for that group and place that was appended after
--   the operation was invoked; of an ack, after the first ack of the message by that receipt was.
--   Where retention took nothing, one that is in no committed log is a violation too: an ack of
--   several messages counts for all of them. Where it took something, only operations that were
--   invoked after the first entry that is left had been appended count.
-- source: Raft, 8: a leader answers once the entry is committed; RocketMQ BATCH_ACK_MESSAGE
with told_kinds as (
  select distinct kind from log where committed and kind in ('pop', 'ack', 'change')
),
first_acks as (
  select client_group, value, receipt, min(t_invoke) as t_first
  from pop_acks
  group by client_group, value, receipt
),
asked as (
  select
    'pop' as kind, op, process, client_group, value, broker_group, topic, queue, offset, t_complete,
    t_invoke as t_from
  from pop_handouts
  union all
  select
    'ack', k.op, k.process, k.client_group, k.value, k.broker_group, k.topic, k.queue, k.offset,
    k.t_complete, f.t_first
  from pop_acks k
  join first_acks f
    on k.client_group = f.client_group and k.value = f.value and k.receipt = f.receipt
  where k.is_sure
  union all
  select
    'change', op, process, client_group, value, broker_group, topic, queue, offset, t_complete,
    t_invoke
  from pop_changes
  where is_ok
),
answers as (
  select a.*
  from asked a
  left semi join told_kinds t on a.kind = t.kind
  -- A reset ends what a group holds, whoever was told that it held it.
  left anti join (select distinct client_group from ops where f = 'reset' and type <> 'fail') r
    on a.client_group = r.client_group
  where a.queue is not null and a.offset is not null and a.topic is not null
),
stored as (
  select
    l.kind, l.client_group, l.broker_group, l.topic, l.queue, l.queue_offset as offset, l.index,
    l.term
  from log l left semi join answers a
    on l.kind = a.kind and l.client_group = a.client_group and l.broker_group = a.broker_group
    and l.topic = a.topic and l.queue = a.queue and l.queue_offset = a.offset
  where l.committed
  group by
    l.kind, l.client_group, l.broker_group, l.topic, l.queue, l.queue_offset, l.index, l.term
),
found as (
  select a.kind, a.op, a.value, min(d.index) as index
  from answers a
  join stored d
    on a.kind = d.kind and a.client_group = d.client_group and a.broker_group = d.broker_group
    and a.topic = d.topic and a.queue = d.queue and a.offset = d.offset
  join first_appends f
    on d.broker_group = f.broker_group and d.index = f.index and d.term = f.term
  cross join pop_settings s
  where f.t_append + s.error_ns >= a.t_from
  group by a.kind, a.op, a.value
),
-- What an operation left stands in the logs if it was appended behind their beginning.
begun as (
  select f.broker_group, f.first_index, min(p.t_append) as t_append
  from first_index f
  left join first_appends p on f.broker_group = p.broker_group and f.first_index = p.index
  group by f.broker_group, f.first_index
)
select
  a.kind, a.op, a.client_group, a.value, a.process, a.broker_group, a.topic, a.queue, a.offset,
  case when d.index is null then 'it is in no log' else 'it was committed later' end as problem,
  d.index, a.t_complete, c.t_committed
from answers a
left join found d on a.kind = d.kind and a.op = d.op and a.value = d.value
left join first_commits c on a.broker_group = c.broker_group and d.index = c.index
left join begun b on a.broker_group = b.broker_group
cross join pop_settings s
where case
  when d.index is null then b.first_index <= 1
  else coalesce(c.t_committed > a.t_complete + s.error_ns, true)
    and (coalesce(b.first_index, cast(1 as bigint)) <= 1 or a.t_from > b.t_append + s.error_ns)
end
