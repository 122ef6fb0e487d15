-- Operations by f, type and final: how many, and how many messages they sent or showed, of them
-- with a shard, with a digest and with an origin; and of the operations those that tell a time (from_ms), and those
-- that have a due.
select
  f,
  type,
  coalesce(final, false) as final,
  count(*) as ops,
  cast(coalesce(sum(greatest(coalesce(size(messages), 0), 0)), 0) as bigint) as messages,
  cast(coalesce(sum(greatest(coalesce(size(filter(messages, m -> m.shard is not null)), 0), 0)), 0) as bigint) as sharded,
  cast(coalesce(sum(greatest(coalesce(size(filter(messages, m -> m.digest is not null)), 0), 0)), 0) as bigint) as digests,
  cast(coalesce(sum(greatest(coalesce(size(filter(messages, m -> m.origin is not null)), 0), 0)), 0) as bigint) as origins,
  count(from_ms) as timed,
  count(due) as with_due
from ops
group by f, type, coalesce(final, false)
