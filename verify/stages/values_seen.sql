-- One row per value that was read or logged: the least and the greatest key that it was seen with.
-- parts: value
select value, min(uniq_key) as least_key, max(uniq_key) as greatest_key
from (
  select value, uniq_key from reads
  union all
  select named as value, uniq_key from records where is_visible
) pairs
group by value
