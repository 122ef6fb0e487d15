-- A11: unexpected value
-- promise: G7
-- needs: ops
-- wants: log
-- examined: select coalesce(sum(messages), 0) from op_counts where f in ('poll', 'deliver', 'pop')
-- nothing: no operation read anything
-- holds: Nothing was read that nobody sent.
-- rule: A value, or a pair of value and uniq_key, that nobody sent, in a read or a committed log. What
--   stands on topics of the system (replies, halves, what waits) is none of it.
-- source: Jepsen's total-queue, unexpected
with suspects as (
  select value, attempts, logged_index
  from values_told
  where (read_op is not null or logged_index is not null)
    and (
      attempts = 0
      or (
        attempts_without_key = 0
        and least_key_seen is not null
        and not (
          least_key_seen = least_key_sent
          and greatest_key_seen = least_key_sent
          and greatest_key_sent = least_key_sent
        )
      )
    )
),
-- What consumers are given; what stands on topics of the system is its own.
shown as (
  select r.*
  from reads r left semi join suspects s on r.value <=> s.value
  where coalesce(r.on_user_topic, true) or startswith(r.topic, '%RETRY%') or startswith(r.topic, '%DLQ%')
),
sent as (
  select a.value, array_sort(collect_set(a.uniq_key)) as keys
  from attempts a left semi join suspects s on a.value <=> s.value
  group by a.value
),
seen as (
  select t.value, array_sort(collect_set(t.uniq_key)) as keys
  from (
    select distinct value, uniq_key from shown
    union all
    select distinct named as value, uniq_key from records where is_visible
  ) t
  left semi join suspects s on t.value <=> s.value
  group by t.value
),
first_reads as (
  select value, coalesce(min(case when type = 'ok' then op end), min(op)) as read_op
  from shown
  group by value
),
found as (
  select
    u.value, r.read_op, u.logged_index, coalesce(s.keys, array()) as sent_keys,
    coalesce(e.keys, array()) as seen_keys
  from suspects u
  left join first_reads r on u.value <=> r.value
  left join sent s on u.value <=> s.value
  left join seen e on u.value <=> e.value
  where (u.attempts = 0 and (r.read_op is not null or u.logged_index is not null))
    or size(filter(e.keys, seen -> not array_contains(coalesce(s.keys, array()), seen))) > 0
),
read_places as (
  select
    r.value,
    min_by(
      struct(r.f, r.broker_group, r.topic, r.queue, r.offset),
      struct(case when r.type = 'ok' then 0 else 1 end as later, r.op, r.place_in_op)
    ) as place
  from shown r left semi join found f on r.value <=> f.value
  group by r.value
),
logged as (
  select
    r.named as value,
    min_by(
      struct(r.node, r.broker_group, r.topic, r.queue, r.offset), struct(r.index, r.node, r.slot)
    ) as place
  from records r left semi join found f on r.named <=> f.value
  where r.is_visible
  group by r.named
)
select
  f.value, f.read_op, f.logged_index, f.sent_keys, f.seen_keys, s.place as read_at,
  l.place as logged_at
from found f
left join read_places s on f.value <=> s.value
left join logged l on f.value <=> l.value
