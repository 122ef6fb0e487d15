-- P9: held pop was not woken
-- promise: G8
-- needs: ops, raft, log
-- wants: faults
-- reaches: yes
-- applies: select (select count(*) from run_groups where wake_ns is not null) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'pop') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'pop' and type = 'ok'
-- nothing: no pop showed a message
-- holds: A pop that was held until a message came was answered when one had come.
-- rule: In a group with wake_ms that is not ordered: a message was committed while an ok pop of any
--   queue of its topic was open, that pop was open still wake_ms later, and nobody of the group had
--   been shown the message by then, though somebody was afterwards. No fault window touches that
--   pop's time, and in the second half of the wake_ms another operation of that broker group was
--   invoked and answered ok: it was not slow for all.
-- source: own rule; RocketMQ PopLongPollingService
with shown as (
  select
    h.client_group, h.broker_group, h.topic, h.queue, h.offset, min(h.t_complete) as t_shown,
    min_by(h.value, struct(h.t_complete, h.op, h.place_in_op)) as value,
    min_by(h.op, struct(h.t_complete, h.op, h.place_in_op)) as shown_by
  from pop_handouts h
  where not h.is_ordered and h.offset is not null and h.queue is not null and h.topic is not null
  group by h.client_group, h.broker_group, h.topic, h.queue, h.offset
),
stored as (
  select r.broker_group, r.topic, r.queue, r.offset, min(c.t_committed) as t_committed
  from records r
  join first_commits c on r.broker_group = c.broker_group and r.index = c.index
  where r.kind in ('message', 'final') and c.t_committed is not null
  group by r.broker_group, r.topic, r.queue, r.offset
),
late as (
  select
    s.client_group, s.broker_group, s.topic, s.queue, s.offset, s.value, s.t_shown, s.shown_by,
    d.t_committed, d.t_committed + g.wake_ns as t_late, g.wake_ns
  from shown s
  join run_groups g on s.client_group = g.client_group and g.wake_ns is not null
  join stored d
    on s.broker_group = d.broker_group and s.topic = d.topic and s.queue = d.queue
    and s.offset = d.offset
  cross join pop_settings p
  where s.t_shown > d.t_committed + g.wake_ns + p.error_ns
),
held as (
  select
    l.client_group, l.broker_group, l.topic, l.queue, l.offset, l.value, l.shown_by, l.t_committed,
    l.t_shown, l.t_late, l.wake_ns, min(o.op) as held_op
  from late l
  join ops o
    on l.client_group = o.client_group and l.broker_group = o.broker_group
    and (l.topic = o.topic or l.topic = concat('%RETRY%', o.client_group, '_', o.topic))
  join calm_stretches c on c.t_from < o.t_invoke and c.t_to > o.t_complete
  cross join pop_settings p
  where o.f = 'pop' and o.type = 'ok' and o.queue is null
    and o.t_invoke + p.error_ns < l.t_committed and o.t_complete > l.t_late + p.error_ns
  group by
    l.client_group, l.broker_group, l.topic, l.queue, l.offset, l.value, l.shown_by, l.t_committed,
    l.t_shown, l.t_late, l.wake_ns
),
answering as (
  select h.client_group, h.broker_group, h.topic, h.queue, h.offset, min(o.op) as other_op
  from held h
  join ops o on h.broker_group = o.broker_group
  where o.type = 'ok' and o.f in ('send', 'pop', 'ack', 'half', 'commit_offset')
    and o.t_invoke >= h.t_late - h.wake_ns div 2 and o.t_complete <= h.t_late
  group by h.client_group, h.broker_group, h.topic, h.queue, h.offset
)
select
  h.client_group, h.broker_group, h.topic, h.queue, h.offset, h.value, h.held_op, h.shown_by,
  h.t_committed, h.t_shown, a.other_op
from held h
join answering a
  on h.client_group = a.client_group and h.broker_group = a.broker_group and h.topic = a.topic
  and h.queue = a.queue and h.offset = a.offset
