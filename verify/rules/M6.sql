-- M6: offset answered before it was committed
-- promise: G5
-- needs: ops, raft, log
-- reaches: yes
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'commit_offset')
--   and ((select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--     or (select count(*) > 0 from event_counts where event = 'commit'))
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'commit_offset' and type = 'ok'
-- nothing: no commit of an offset was acknowledged
-- holds: No commit of a consumer offset was acknowledged before a majority had it.
-- rule: An ok commit_offset whose record stands in an entry that the first node of the group to commit
--   it committed later than the answer came, by more than the clocks may differ. Its record is the
--   first of that group, queue and offset that was first appended after the commit was invoked;
--   where retention took nothing, one whose record is in no committed log is a violation too. An
--   offset that rode on a poll, too, may have been stored before, and is left out.
-- source: Raft, 8: a leader answers once the entry is committed; promise G5
with answers as (
  select
    o.op, o.client_group, o.broker_group, o.topic, o.queue, o.offset, o.t_invoke, o.t_complete
  from ops o
  left anti join ops p
    on p.f = 'poll' and o.client_group = p.client_group and o.broker_group = p.broker_group
    and o.topic = p.topic and o.queue = p.queue and o.offset = p.commit_offset
  where o.f = 'commit_offset' and o.type = 'ok' and o.offset is not null
),
stored as (
  select l.client_group, l.broker_group, l.topic, l.queue, l.queue_offset as offset, l.index, l.term
  from log l left semi join answers a
    on l.client_group = a.client_group and l.broker_group = a.broker_group and l.topic = a.topic
    and l.queue = a.queue and l.queue_offset = a.offset
  where l.kind = 'offset' and l.committed
  group by l.client_group, l.broker_group, l.topic, l.queue, l.queue_offset, l.index, l.term
),
found as (
  select a.op, min(d.index) as index
  from answers a
  join stored d
    on a.client_group = d.client_group and a.broker_group = d.broker_group and a.topic = d.topic
    and a.queue = d.queue and a.offset = d.offset
  join first_appends f
    on d.broker_group = f.broker_group and d.index = f.index and d.term = f.term
  cross join run_settings s
  where f.t_append + coalesce(s.clock_error_ns, cast(0 as bigint)) >= a.t_invoke
  group by a.op
)
select
  a.op, a.client_group, a.broker_group, a.topic, a.queue, a.offset,
  case when d.index is null then 'it is in no log' else 'it was committed later' end as problem,
  d.index, a.t_complete, c.t_committed
from answers a
left join found d on a.op = d.op
left join first_commits c on a.broker_group = c.broker_group and d.index = c.index
left join first_index f on a.broker_group = f.broker_group
cross join run_settings s
where case
  when d.index is null then f.first_index <= 1
  else coalesce(c.t_committed > a.t_complete + coalesce(s.clock_error_ns, cast(0 as bigint)), true)
end
