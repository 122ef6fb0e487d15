-- The places of queues that committed records stand at, and when an entry with such a record was
-- first told committed (null: never). `is_message`: it is one that consumers can be given.
-- parts: offset
select
  r.broker_group, r.topic, r.queue, r.offset, min(c.t_committed) as t_committed,
  min(r.index) as index, bool_or(r.kind in ('message', 'final')) as is_message,
  bool_or(r.index >= f.first_index) as is_kept
from records r
join first_commits c on r.broker_group = c.broker_group and r.index = c.index
left join first_index f on r.broker_group = f.broker_group
where r.topic is not null and r.queue is not null and r.offset is not null
group by r.broker_group, r.topic, r.queue, r.offset
