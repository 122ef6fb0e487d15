-- One row per value that was attempted, acknowledged, read or found in a log. `attempts`, of them
-- `open_attempts` that did not end fail and `attempts_without_key`; `acked_op` null where it was
-- never acknowledged, then with the place as far as it is told; `must`: it must have committed;
-- `was_read`: by an ok read; `read_op` and the place: the first read of it, an ok one if there is
-- one; `read_by`: the at-least-once groups that read it ok; `logged_index`: its first committed
-- record on a user topic.
with facts as (
  select
    a.value, a.op as sent_op, a.type as sent_type, a.uniq_key as sent_key,
    cast(null as bigint) as acked_op,
    cast(null as struct<broker_group:string, topic:string, queue:int, offset:bigint>) as acked_place,
    cast(null as string) as tx,
    c.op is not null and a.f = 'send' as must,
    cast(null as bigint) as read_op, cast(null as boolean) as read_ok,
    cast(null as struct<f:string, broker_group:string, topic:string, queue:int, offset:bigint>) as read_at,
    cast(null as string) as ok_group, cast(null as string) as seen_key,
    cast(null as bigint) as logged_index,
    cast(null as struct<node:string, broker_group:string, topic:string, queue:int, offset:bigint>) as logged_at
  from attempts a left join must_have_committed c on a.op = c.op
  union all
  select
    value, null, null, null, op,
    struct(broker_group, topic, queue, offset), tx, true,
    null, null, null, null, null, null, null
  from acked
  union all
  select
    r.value, null, null, null, null, null, null, false,
    r.op, r.type = 'ok', struct(r.f, r.broker_group, r.topic, r.queue, r.offset),
    case when r.type = 'ok' then g.client_group end, r.uniq_key, null, null
  from reads r left join run_groups g on r.client_group = g.client_group and g.at_least_once
  union all
  select
    named, null, null, null, null, null, null, false, null, null, null, null,
    uniq_key, index, struct(node, broker_group, topic, queue, offset)
  from records
  where is_visible
)
select
  value,
  count(sent_type) as attempts,
  count_if(sent_type is not null and sent_type <> 'fail') as open_attempts,
  count_if(sent_type is not null and sent_key is null) as attempts_without_key,
  min(sent_op) as sent_op,
  min(acked_op) as acked_op,
  min_by(acked_place, acked_op) filter (where acked_op is not null) as acked_place,
  min(tx) as tx,
  coalesce(bool_or(must), false) as must,
  coalesce(bool_or(read_ok), false) as was_read,
  coalesce(min(case when read_ok then read_op end), min(read_op)) as read_op,
  coalesce(
    min_by(read_at, read_op) filter (where read_ok),
    min_by(read_at, read_op) filter (where read_op is not null)
  ) as read_at,
  coalesce(array_sort(collect_set(ok_group)), array()) as read_by,
  coalesce(array_sort(collect_set(sent_key)), array()) as sent_keys,
  coalesce(array_sort(collect_set(seen_key)), array()) as seen_keys,
  min(logged_index) as logged_index,
  min_by(logged_at, struct(logged_index, logged_at.node)) filter (where logged_index is not null) as logged_at
from facts
group by value
