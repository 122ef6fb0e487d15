-- C15: held poll not woken
-- promise: G8
-- needs: ops, log, raft
-- wants: faults
-- applies: select (select count(*) from run_groups where wake_ns is not null) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'poll') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'poll' and type = 'ok'
-- nothing: no operation polled
-- holds: A poll that a broker held was answered soon after a message came.
-- rule: An ok poll of a group with wake_ms that was answered only when its time was up (at its due or
--   later), and later than wake_ms after the message at the offset that it asked for (of a group with
--   tags only one whose tag has the hash of one of them) was first committed, or after the poll began
--   where that was later. It lay, from its invoke to its end, in a stretch without fault windows, a
--   second or more behind its beginning.
-- source: RocketMQ PullRequestHoldService, NotifyMessageArrivingListener
with held as (
  select
    o.op, o.process, o.node, o.client_group, o.broker_group, o.topic, o.queue, o.offset, o.t_invoke,
    o.t_complete, o.due, g.wake_ns, g.of_some_tags, coalesce(size(o.messages), 0) as messages
  from ops o
  join run_groups g on o.client_group = g.client_group and g.wake_ns is not null
  join calm_stretches c on o.t_invoke > c.t_from + 1000000000 and o.t_complete < c.t_to
  where o.f = 'poll' and o.type = 'ok' and o.due is not null and o.offset is not null
    and o.t_complete >= o.due
),
came as (
  select
    h.op, min(c.t_committed) as t_committed, min_by(l.value, struct(l.index, l.value)) as value
  from held h
  join log l
    on h.broker_group = l.broker_group and h.topic = l.topic and h.queue = l.queue
    and h.offset = l.queue_offset
  join first_commits c on l.broker_group = c.broker_group and l.index = c.index
  -- What a group does not want wakes none of its polls.
  left join run_group_tags t on h.client_group = t.client_group and l.tag_hash = t.tag_hash
  where l.committed and l.kind in ('message', 'final') and c.t_committed is not null
    and (not h.of_some_tags or t.tag_hash is not null)
  group by h.op
)
select
  h.client_group, h.broker_group, h.topic, h.queue, h.offset, h.op, c.value, h.process, h.node,
  h.t_invoke, c.t_committed, h.due, h.t_complete, h.messages
from held h
join came c on h.op = c.op
cross join run_settings s
where h.t_complete - greatest(c.t_committed, h.t_invoke)
  > h.wake_ns + coalesce(s.clock_error_ns, cast(0 as bigint))
