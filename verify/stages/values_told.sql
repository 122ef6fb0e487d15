-- One row per value that was attempted, acknowledged, read or found in a log. `attempts`, of them
-- `open_attempts` that did not end fail and `attempts_without_key`; `acked_op` null where it was
-- never acknowledged, then with the place as far as it is told; `must`: it must have committed;
-- `was_read`: by an ok read; `read_op`: the first read of it, an ok one if there is one;
-- `groups_that_read`: how many at-least-once groups read it ok; `logged_index`: its first committed
-- record on a user topic. Of the keys that it was sent and seen with stand the least and the greatest
-- here: where all four are one there is no other, and lists per value do not spill.
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
  ) told
  group by value
),
names as (
  select value from sent
  union
  select value from known
  union
  select value from seen
)
select
  n.value,
  coalesce(s.attempts, 0) as attempts,
  coalesce(s.open_attempts, 0) as open_attempts,
  coalesce(s.attempts_without_key, 0) as attempts_without_key,
  s.sent_op,
  k.op as acked_op,
  k.place as acked_place,
  k.tx,
  coalesce(s.must, false) or k.op is not null as must,
  coalesce(r.was_ok, false) as was_read,
  r.op as read_op,
  coalesce(r.groups, 0) as groups_that_read,
  s.least_key as least_key_sent,
  s.greatest_key as greatest_key_sent,
  e.least_key as least_key_seen,
  e.greatest_key as greatest_key_seen,
  l.index as logged_index
from names n
left join sent s on n.value <=> s.value
left join known k on n.value <=> k.value
left join shown r on n.value <=> r.value
left join seen e on n.value <=> e.value
left join logged l on n.value <=> l.value
