-- D4: waits twice
-- promise: G2
-- needs: ops, log
-- applies: select (select coalesce(bool_or(has_delays), false) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'delay') > 0
-- examined: select coalesce(sum(messages), 0) from op_counts where f = 'delay' and type <> 'fail'
-- nothing: no delayed message was sent
-- holds: No delayed message waits at two places.
-- rule: A delayed message with two committed records on topics where messages wait, both before its
--   first record on a user topic: behind that one it may wait again for a consumer that sent it
--   back.
-- source: RocketMQ ScheduleMessageService, TimerMessageStore; promise G2
with waits as (
  select
    r.broker_group, r.named as value, r.topic, r.queue, r.offset, min(r.index) as index
  from records r
  left semi join delays d on r.named = d.value
  left anti join tried_twice t on r.named = t.value
  where r.kind in ('message', 'final') and r.topic in ('SCHEDULE_TOPIC_XXXX', 'rmq_sys_wheel_timer')
  group by r.broker_group, r.named, r.topic, r.queue, r.offset
)
select
  w.broker_group, w.value, count(*) as places,
  min_by(struct(w.topic, w.queue, w.offset, w.index), struct(w.index, w.topic, w.queue, w.offset)) as one,
  max_by(struct(w.topic, w.queue, w.offset, w.index), struct(w.index, w.topic, w.queue, w.offset)) as other
from waits w
join delays d on w.value = d.value
where d.first_index is null or w.index < d.first_index
group by w.broker_group, w.value
having count(*) > 1
