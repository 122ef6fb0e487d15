-- One row per value of a visible record: its first committed index.
-- parts: value
select named as value, min(index) as index
from records
where is_visible
group by named
