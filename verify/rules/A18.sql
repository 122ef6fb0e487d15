-- A18: other contents
-- promise: G1
-- needs: ops
-- wants: log
-- applies: select (select coalesce(sum(digests), 0) from op_counts) > 0
--   and (select coalesce(sum(digests), 0) from op_counts
--     where f in ('poll', 'deliver', 'pop', 'query', 'search'))
--   + (select coalesce(sum(digests), 0) from record_counts
--     where committed and kind in ('message', 'half', 'final')) > 0
-- examined: select case
--   when (select coalesce(sum(digests), 0) from op_counts
--     where f in ('send', 'half', 'delay', 'request')) = 0 then 0
--   else (select coalesce(sum(digests), 0) from op_counts
--     where f in ('poll', 'deliver', 'pop', 'query', 'search'))
--     + (select coalesce(sum(digests), 0) from record_counts
--       where committed and kind in ('message', 'half', 'final'))
--   end
-- nothing: of nothing that was sent a digest is told
-- holds: Every message carries what was sent: body, flag, tags, keys and properties.
-- rule: A message that was read, or found by a query, or a committed record of a message, a half or a
--   final, with a digest that no attempt of its value had; a value one of whose attempts has no
--   digest is not judged. And a final whose digest is that of no committed half of its transaction.
--   Of ledgermq, whose stores are read here, where logs tell digests: a record on a user topic whose
--   contents no replica's log could be read for.
-- source: the run format, digest; promises G1 and G4
with shown as (
  select
    m.value, m.digest, m.op, cast(null as string) as node, cast(null as bigint) as index,
    cast(null as int) as slot
  from reads m join values_sent s on m.value = s.value
  where m.digest <> s.digest
  union all
  select m.value, m.digest, m.op, null, null, null
  from messages m join values_sent s on m.value = s.value
  where m.f in ('query', 'search') and m.digest <> s.digest
  union all
  select r.value, r.digest, null, r.node, r.index, r.slot
  from records r join values_sent s on r.value = s.value
  where r.kind in ('message', 'half', 'final') and r.digest <> s.digest
),
-- What is compressed in another way than its record says has no contents that could be digested.
undigested as (
  select distinct value, broker_group, topic, queue, offset
  from records r
  cross join run_settings g
  -- Logs of which nobody took a digest have no such column.
  cross join (
    select coalesce(sum(digests), 0) as digests
    from record_counts
    where committed and kind in ('message', 'half', 'final')
  ) c
  where g.own_system and c.digests > 0
    and r.is_visible and r.value is not null and r.digest is null
),
unreadable as (
  select
    r.value, r.broker_group, min(r.node) as node, min(r.index) as index, min(r.slot) as slot
  from undigested u
  join records r
    on u.value = r.value and u.broker_group <=> r.broker_group and u.topic = r.topic
    and u.queue <=> r.queue and u.offset <=> r.offset
  join values_sent s on u.value = s.value
  where r.is_visible and s.digest is not null
  group by r.value, r.broker_group, r.topic, r.queue, r.offset
  having count(r.digest) = 0
),
halves as (
  select tx, min(digest) as digest
  from records
  where kind = 'half' and tx is not null and digest is not null
  group by tx
),
finals as (
  select r.tx, r.value, r.digest, r.node, r.index, r.slot
  from records r join halves h on r.tx = h.tx
  where r.kind = 'final' and r.digest <> h.digest
),
found as (
  select 'what was sent' as differs_from, c.value, c.digest, cast(null as string) as tx, c.op, c.node, c.index, c.slot
  from shown c
  left anti join attempts a on c.value = a.value and c.digest = a.digest
  union all
  select 'anything: it can\'t be read', u.value, null, null, null, u.node, u.index, u.slot
  from unreadable u
  union all
  select 'its half', f.value, f.digest, f.tx, null, f.node, f.index, f.slot
  from finals f
  left anti join (
    select tx, digest from records where kind = 'half' and tx is not null and digest is not null
  ) h on f.tx = h.tx and f.digest = h.digest
)
select
  differs_from, value, digest, tx, min(op) as read_op, count(op) as reads,
  min_by(struct(node, index, slot), struct(node, index, slot)) filter (where node is not null) as record,
  count(node) as records
from found
group by differs_from, value, digest, tx
