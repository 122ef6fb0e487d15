-- K3327: dead letters that nobody can read
-- promise: none
-- needs: ops, log
-- applies: select (select count(*) > 0 from run_groups where retries_max is not null)
--   and (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'deliver' and type = 'fail')
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'deliver' and type = 'fail'
-- nothing: nothing was refused
-- holds: Whoever read a topic of dead letters from its beginning was shown all of them.
-- rule: A committed message on a topic of dead letters that a group of the run reads, once all else
--   is over, and that no poll of that topic showed. A doubt where there is none, though a message
--   was refused for the last time.
-- source: RocketMQ issues 3327, 2436, 1223
with stands as (
  select r.broker_group, r.topic, r.queue, r.offset, min(r.named) as value
  from records r
  left semi join run_group_topics t on r.topic = t.topic
  where r.kind = 'message' and startswith(r.topic, '%DLQ%') and r.offset is not null
  group by r.broker_group, r.topic, r.queue, r.offset
),
polls as (
  select topic, count(*) as polls, min(error) as error from ops where f = 'poll' group by topic
),
counted as (
  select count(*) as letters from stands
),
given_up as (
  select count(*) as refusals from refusals where is_refused and reconsume >= retries_max
)
select
  s.broker_group, s.topic, s.queue, s.offset, s.value, coalesce(p.polls, cast(0 as bigint)) as polls,
  p.error, cast(null as string) as reason
from stands s
left anti join reads r
  on s.broker_group = r.broker_group and s.topic = r.topic and s.queue = r.queue
  and s.offset = r.offset
left join polls p on s.topic = p.topic
union all
select null, null, null, null, null, null, null, 'there are no dead letters'
from counted
cross join given_up
where letters = 0 and refusals > 0
