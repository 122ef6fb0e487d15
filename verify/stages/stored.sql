-- Where the committed logs of all replicas together have a value: one row per place and value,
-- with the keys that its record can be asked for by. `is_message`: consumers can be given it.
select
  broker_group, topic, queue, offset, named as value,
  min(uniq_key) as uniq_key, min(keys) as keys,
  bool_or(kind in ('message', 'final')) as is_message
from records
where named is not null
group by broker_group, topic, queue, offset, named
