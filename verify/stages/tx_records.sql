-- Committed records of transactions, once however many replicas hold them, with the time when they
-- could first be seen (null without a trace of it). `role`: `half`, `op`, `final` (on a user topic)
-- or `discard` (given up for want of a decision). A record is of the transaction that it names, else
-- of the one whose half has its value. `counts`: it stands where absence counts.
with transactional as (
  select
    broker_group, node, index, term, slot, topic, queue, offset, value, uniq_key, digest, tx, decision,
    case
      when kind = 'final' and is_visible then 'final'
      when kind in ('half', 'op') then kind
      when kind = 'message' and topic = 'TRANS_CHECK_MAX_TIME_TOPIC' then 'discard'
    end as role
  from records
  where kind in ('final', 'half', 'op') or topic = 'TRANS_CHECK_MAX_TIME_TOPIC'
),
of_values as (
  select value, min(tx) as tx from transactions where value is not null group by value
),
named as (
  select
    coalesce(r.tx, v.tx) as tx, r.role, r.broker_group, r.index, r.slot, r.decision,
    min(r.term) as term, min(r.node) as node, min(r.topic) as topic, min(r.queue) as queue,
    min(r.offset) as offset, min(r.value) as value, min(r.uniq_key) as uniq_key,
    min(r.digest) as digest
  from transactional r left join of_values v on r.value = v.value
  where r.role is not null
  group by coalesce(r.tx, v.tx), r.role, r.broker_group, r.index, r.slot, r.decision
)
select
  n.tx, n.role, n.broker_group, n.index, n.slot, n.decision, n.term, n.node, n.topic, n.queue, n.offset,
  n.value, n.uniq_key, n.digest, a.t_append,
  n.index >= coalesce(f.first_index, cast(0 as bigint)) as counts
from named n
left join first_appends a
  on n.broker_group = a.broker_group and n.index = a.index and n.term = a.term
left join first_index f on n.broker_group = f.broker_group
where n.tx is not null
