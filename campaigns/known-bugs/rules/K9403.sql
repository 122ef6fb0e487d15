-- K9403: a topic is gone with the leader that died
-- promise: none
-- needs: ops, faults
-- applies: select (select coalesce(sum(faults), 0) > 0 from fault_counts where effect = 'taken')
-- examined: select coalesce(sum(ops), 0) from op_counts where f in ('send', 'poll', 'max_offset')
-- nothing: nothing was sent or read
-- holds: No broker said of a topic of the run that there was none.
-- rule: A send, a read or a question for the end of a queue, of a topic that the run made and never
--   deleted, that a broker refused since it knew no such topic (code 17), behind the first fault.
-- source: RocketMQ issues 9403, 9804
with first_fault as (
  select min(t_effect) as t from faults where t_effect is not null
)
select o.op, o.f, o.process, o.broker_group, o.topic, o.queue, o.t_invoke, o.error
from ops o
cross join first_fault f
left anti join (select distinct topic from ops where f = 'delete_topic') d on o.topic = d.topic
where o.f in ('send', 'poll', 'max_offset') and o.type <> 'ok' and o.t_invoke > f.t
  and startswith(o.error, 'TopicNotExistError')
