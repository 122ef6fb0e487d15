-- Rows of the replicas' logs by kind, and whether they are committed; of them with a digest, and
-- with the time of storing.
select
  kind,
  coalesce(committed, false) as committed,
  count(*) as records,
  count(digest) as digests,
  count(stored_ms) as timed
from log
group by kind, coalesce(committed, false)
