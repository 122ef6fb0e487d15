-- A21: shown before it was committed
-- promise: G6
-- needs: ops, raft, log
-- reaches: yes
-- applies: select (select coalesce(bool_or(engine = 'raft'), false) from run_settings)
--   or (select count(*) > 0 from event_counts where event = 'commit')
-- examined: select (select coalesce(sum(messages), 0) from op_counts where f in ('poll', 'deliver', 'pop') and type = 'ok')
--   + (select coalesce(sum(ops), 0) from op_counts where f = 'max_offset' and type = 'ok')
-- nothing: no operation read anything
-- holds: Nothing was shown before it was committed.
-- rule: A message that an ok read showed before any node had committed the entry at its place; and a
--   max offset beyond all that was committed when it was answered, unless retention may have taken
--   what stood there. By more than the clocks may differ.
-- source: own rule
with settings as (
  select coalesce(max(clock_error_ns), cast(0 as bigint)) as error_ns from run_settings
),
asked as (
  select
    o.op, o.t_complete, o.broker_group, o.topic, o.queue, o.offset, o.t_complete + s.error_ns as at
  from ops o cross join settings s
  where o.f = 'max_offset' and o.type = 'ok' and o.offset > 0
),
kept as (
  select broker_group, topic, queue, min(offset) as first_offset
  from committed_places
  where is_kept
  group by broker_group, topic, queue
),
line as (
  select
    p.broker_group, p.topic, p.queue, p.t_committed as at, 0 as turn, cast(-1 as bigint) as op,
    p.offset as stored, cast(null as bigint) as offset, cast(null as bigint) as t_complete
  from committed_places p
  left semi join asked a
    on p.broker_group = a.broker_group and p.topic = a.topic and p.queue = a.queue
  where p.t_committed is not null
  union all
  select broker_group, topic, queue, at, 1, op, null, offset, t_complete from asked
),
answered as (
  select
    *,
    max(stored) over (
      partition by broker_group, topic, queue order by at, turn, op, stored
      rows between unbounded preceding and current row
    ) as last_stored
  from line
)
select
  r.op, r.place_in_op, r.f, r.broker_group, r.topic, r.queue, r.offset, r.value, r.t_complete,
  p.index, p.t_committed, cast(null as bigint) as last_stored
from reads r
join committed_places p
  on r.broker_group = p.broker_group and r.topic = p.topic and r.queue = p.queue and r.offset = p.offset
cross join settings s
where r.type = 'ok' and p.is_message
  and coalesce(p.t_committed > r.t_complete + s.error_ns, true)
union all
select
  a.op, null, 'max_offset', a.broker_group, a.topic, a.queue, a.offset, null, a.t_complete,
  null, null, a.last_stored
from answered a
left join first_index f on a.broker_group = f.broker_group
left join kept k on a.broker_group = k.broker_group and a.topic = k.topic and a.queue = k.queue
where a.turn = 1 and a.offset > 1 + coalesce(a.last_stored, cast(-1 as bigint))
  and a.offset > coalesce(
    k.first_offset,
    case when f.first_index = 1 then cast(0 as bigint) else cast(9223372036854775807 as bigint) end
  )
