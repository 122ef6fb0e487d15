-- Rows of the replicas' logs by kind, and whether they are committed; of them with a digest.
select
  kind,
  coalesce(committed, false) as committed,
  count(*) as records,
  count(digest) as digests
from log
group by kind, coalesce(committed, false)
