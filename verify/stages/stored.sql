-- Where the committed logs of all replicas together have a value: one row per place and value,
-- with the keys that the first replica's record can be asked for by (there is no least of lists: one
-- engine puts a null within before everything, the other behind). `is_message`: consumers can be
-- given it.
-- parts: value
select
  broker_group, topic, queue, offset, named as value,
  min(uniq_key) as uniq_key,
  min_by(
    struct(keys as keys),
    struct(
      coalesce(node, '') as node, coalesce(index, cast(-1 as bigint)) as index,
      coalesce(slot, -1) as slot
    )
  ).keys as keys,
  bool_or(kind in ('message', 'final')) as is_message
from records
where named is not null
group by broker_group, topic, queue, offset, named
