-- K1934: delayed messages of long ago came again
-- promise: none
-- needs: ops, faults, log
-- applies: select (select coalesce(sum(ops), 0) > 0 from op_counts where f = 'delay')
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'delay' and type = 'ok'
-- nothing: no delayed message was acknowledged
-- holds: No delayed message that had been delivered long before the first fault was delivered again
--   by a later leader.
-- rule: A delayed message at two places of user topics, of different terms, that was shown half a
--   minute before the first fault took effect. What was shown later a replica may not know of yet:
--   RocketMQ's take over the progress of delayed messages every ten seconds, from a file that is
--   written every ten seconds. Of one that a client sent twice both copies are of one term.
-- source: RocketMQ issue 1934
with first_fault as (
  select min(t_effect) as t from faults where t_effect is not null
),
stands as (
  select r.broker_group, r.named as value, r.topic, r.queue, r.offset, min(r.term) as term
  from records r
  left semi join delays d on r.named = d.value
  left anti join tried_twice t on r.named = t.value
  where r.is_visible and r.offset is not null
  group by r.broker_group, r.named, r.topic, r.queue, r.offset
)
select
  s.broker_group, s.value, count(*) as places, min(d.t_shown) as t_shown,
  min_by(struct(s.term, s.topic, s.queue, s.offset), struct(s.term, s.topic, s.queue, s.offset)) as one,
  max_by(struct(s.term, s.topic, s.queue, s.offset), struct(s.term, s.topic, s.queue, s.offset)) as other
from stands s
join delays d on s.value = d.value
cross join first_fault f
where d.t_shown < f.t - cast(30000000000 as bigint)
group by s.broker_group, s.value
having count(distinct s.term) > 1
