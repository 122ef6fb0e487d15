-- One row per value that was attempted, acknowledged, read or found in a log. `attempts`, of them
-- `open_attempts` that did not end fail and `attempts_without_key`; `acked_op` null where it was
-- never acknowledged, then with the place as far as it is told; `must`: it must have committed;
-- `was_read`: by an ok read; `read_op`: the first read of it, an ok one if there is one; `read_by`: the
-- at-least-once groups that read it ok; `logged_index`: its first committed record on a user topic.
with sent as (
  select
    a.value,
    count(a.type) as attempts,
    count_if(a.type <> 'fail') as open_attempts,
    count_if(a.type is not null and a.uniq_key is null) as attempts_without_key,
    min(a.op) as sent_op,
    bool_or(c.op is not null and a.f = 'send') as must,
    array_sort(collect_set(a.uniq_key)) as keys
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
    coalesce(min(case when r.type = 'ok' then r.op end), min(r.op)) as op,
    bool_or(r.type = 'ok') as was_ok,
    array_sort(collect_set(case when r.type = 'ok' then g.client_group end)) as groups
  from reads r left join run_groups g on r.client_group = g.client_group and g.at_least_once
  group by r.value
),
logged as (
  select named as value, min(index) as index
  from records
  where is_visible
  group by named
),
seen as (
  select value, array_sort(collect_set(uniq_key)) as keys
  from (
    select distinct value, uniq_key from reads
    union all
    select distinct named as value, uniq_key from records where is_visible
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
  coalesce(r.groups, array()) as read_by,
  coalesce(s.keys, array()) as sent_keys,
  coalesce(e.keys, array()) as seen_keys,
  l.index as logged_index
from names n
left join sent s on n.value <=> s.value
left join known k on n.value <=> k.value
left join shown r on n.value <=> r.value
left join seen e on n.value <=> e.value
left join logged l on n.value <=> l.value
