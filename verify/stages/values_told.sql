-- One row per value that was attempted, acknowledged, read or found in a log. `attempts`, of them
-- `open_attempts` that did not end fail and `attempts_without_key`; `acked_op` null where it was
-- never acknowledged, then with the place as far as it is told; `must`: it must have committed;
-- `was_read`: by an ok read; `read_op`: the first read of it, an ok one if there is one;
-- `groups_that_read`: how many at-least-once groups read it ok; `logged_index`: its first committed
-- record on a user topic. Of the keys that it was sent and seen with stand the least and the greatest
-- here: where all four are one there is no other, and lists per value do not spill. Nor do many
-- joins at once: what each table knows of a value is put in rows of one shape, and grouped once.
with sent as (
  select
    a.value,
    count(a.type) as attempts,
    count_if(a.type <> 'fail') as open_attempts,
    count_if(a.type is not null and a.uniq_key is null) as attempts_without_key,
    min(a.op) as sent_op,
    bool_or(c.op is not null and a.f = 'send') as must,
    min(a.uniq_key) as least_key,
    max(a.uniq_key) as greatest_key
  from attempts a left join must_have_committed c on a.op = c.op
  group by a.value
),
known as (
  select
    value, min(op) as op, min(tx) as tx,
    min_by(
      struct(broker_group, topic, queue, offset),
      struct(op, coalesce(offset, cast(-1 as bigint)) as offset)
    ) as place
  from acked
  group by value
),
shown as (
  select
    r.value,
    coalesce(min(r.ok_op), min(r.op)) as op,
    min(r.ok_op) is not null as was_ok,
    count(case when r.ok_op is not null then g.client_group end) as groups
  from (
    select
      value, client_group, min(op) as op, min(case when type = 'ok' then op end) as ok_op
    from reads
    group by value, client_group
  ) r
  left join run_groups g on r.client_group = g.client_group and g.at_least_once
  group by r.value
),
logged as (
  select named as value, min(index) as index
  from records
  where is_visible
  group by named
),
seen as (
  select value, min(uniq_key) as least_key, max(uniq_key) as greatest_key
  from (
    select value, uniq_key from reads
    union all
    select named as value, uniq_key from records where is_visible
  ) pairs
  group by value
),
told as (
  select
    value, attempts, open_attempts, attempts_without_key, sent_op, must,
    least_key as least_key_sent, greatest_key as greatest_key_sent, null as acked_op,
    null as tx, null as broker_group, null as topic, null as queue, null as offset,
    null as read_op, null as was_ok, null as groups, null as least_key_seen,
    null as greatest_key_seen, null as logged_index
  from sent
  union all
  select
    value, null, null, null, null, null, null, null, op, tx, place.broker_group, place.topic,
    place.queue, place.offset, null, null, null, null, null, null
  from known
  union all
  select
    value, null, null, null, null, null, null, null, null, null, null, null, null, null, op,
    was_ok, groups, null, null, null
  from shown
  union all
  select
    value, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
    null, null, least_key, greatest_key, null
  from seen
  union all
  select
    value, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
    null, null, null, null, index
  from logged
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
  coalesce(max(groups), 0) as groups_that_read,
  max(least_key_sent) as least_key_sent,
  max(greatest_key_sent) as greatest_key_sent,
  max(least_key_seen) as least_key_seen,
  max(greatest_key_seen) as greatest_key_seen,
  max(logged_index) as logged_index
from told
group by value
