-- One row per value that was acknowledged: by which operation, when first, and at which place as far
-- as it is told.
-- parts: value
select
  value, min(op) as op, min(tx) as tx, min(t_acked) as t_acked,
  min_by(
    struct(broker_group, topic, queue, offset),
    struct(op, coalesce(offset, cast(-1 as bigint)) as offset)
  ) as place
from acked
group by value
