-- One row per value that was attempted, acknowledged, read or found in a log. `attempts`, of them
-- `open_attempts` that did not end fail and `attempts_without_key`; `acked_op` null where it was
-- never acknowledged, then with the place as far as it is told; `must`: it must have committed;
-- `was_read`: by an ok read; `read_op`: the first read of it, an ok one if there is one;
-- `groups_that_read`: which of `at_least_once_groups` read it ok, as their bits; `logged_index`: its first committed
-- record on a user topic. Of the keys that it was sent and seen with stand the least and the greatest
-- here: where all four are one there is no other, and lists per value do not spill. Nor do many
-- joins at once: what each stage before knows of a value is put in rows of one shape, and grouped once.
-- parts: value
with told as (
  select
    value, attempts, open_attempts, attempts_without_key, sent_op, must,
    least_key as least_key_sent, greatest_key as greatest_key_sent, null as acked_op,
    null as tx, null as broker_group, null as topic, null as queue, null as offset,
    null as read_op, null as was_ok, null as groups, null as least_key_seen,
    null as greatest_key_seen, null as logged_index
  from values_sent
  union all
  select
    value, null, null, null, null, null, null, null, op, tx, place.broker_group, place.topic,
    place.queue, place.offset, null, null, null, null, null, null
  from values_acked
  union all
  select
    value, null, null, null, null, null, null, null, null, null, null, null, null, null, op,
    was_ok, groups, null, null, null
  from values_read
  union all
  select
    value, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
    null, null, least_key, greatest_key, null
  from values_seen
  union all
  select
    value, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
    null, null, null, null, index
  from values_logged
)
select
  value,
  coalesce(max(attempts), 0) as attempts,
  coalesce(max(open_attempts), 0) as open_attempts,
  coalesce(max(attempts_without_key), 0) as attempts_without_key,
  max(sent_op) as sent_op,
  max(acked_op) as acked_op,
  case
    when max(acked_op) is not null
      then struct(
        max(broker_group) as broker_group, max(topic) as topic, max(queue) as queue,
        max(offset) as offset
      )
  end as acked_place,
  max(tx) as tx,
  coalesce(bool_or(must), false) or max(acked_op) is not null as must,
  coalesce(bool_or(was_ok), false) as was_read,
  max(read_op) as read_op,
  coalesce(max(groups), cast(0 as bigint)) as groups_that_read,
  max(least_key_sent) as least_key_sent,
  max(greatest_key_sent) as greatest_key_sent,
  max(least_key_seen) as least_key_seen,
  max(greatest_key_seen) as greatest_key_seen,
  max(logged_index) as logged_index
from told
group by value
