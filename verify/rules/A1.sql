-- A1: inconsistent offsets
-- promise: G3
-- needs: ops
-- wants: log
-- examined: select (select coalesce(sum(messages), 0) from op_counts where f in ('poll', 'deliver', 'pop'))
--   + (select coalesce(sum(records), 0) from record_counts where committed and kind in ('message', 'final'))
-- nothing: no operation read anything
-- holds: One offset of a queue never shows two different messages.
-- rule: Two values at one offset of one queue, whoever says so: reads, acknowledgements or a log.
-- source: Jepsen's Kafka workload, inconsistent-offsets
with disputed as (
  select broker_group, topic, queue, offset
  from standing
  group by broker_group, topic, queue, offset
  having min(value) <> max(value)
),
told as (
  select
    broker_group, topic, queue, offset, value,
    min(struct(coalesce(op, cast(-1 as bigint)) as op, source, coalesce(node, '') as node)) as teller
  from places p left semi join disputed d
    on p.broker_group <=> d.broker_group and p.topic <=> d.topic and p.queue = d.queue
    and p.offset = d.offset
  group by broker_group, topic, queue, offset, value
),
bounds as (
  select
    broker_group, topic, queue, offset,
    min_by(struct(value, teller.source as source, nullif(teller.op, -1) as op, nullif(teller.node, '') as node), value) as one,
    max_by(struct(value, teller.source as source, nullif(teller.op, -1) as op, nullif(teller.node, '') as node), value) as other,
    count(*) as values_told
  from told
  group by broker_group, topic, queue, offset
)
select broker_group, topic, queue, offset, one, other
from bounds
where values_told > 1
