-- C19: committed beyond what was consumed
-- promise: G5
-- needs: ops
-- applies: select (select count(*) from run_groups
--     where kind <> 'broadcast' and (at_least_once or retries_max is not null)) > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'commit_offset') > 0
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'deliver') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'commit_offset'
-- nothing: no offset was committed
-- holds: No member committed an offset behind a message that its group had not consumed.
-- rule: A commit, of whatever outcome, by a client of a group that gets all messages of a listed topic
--   (at_least_once or retries_max), and the message before its offset, at or above the queue's floor,
--   was given to nobody of the group whose delivery had ended by then, ok or refused; of an exclusive
--   group a refusal does not count but at retries_max. Clients that poll, groups with tags, and
--   queues that an administrator reset the group in, are left out; so is the place before the offset
--   where a member had sought beyond it.
-- source: RocketMQ ProcessQueue; DefaultLitePullConsumer
with members as (
  select distinct o.client_group, g.exclusive, g.retries_max
  from ops o
  join run_groups g on o.client_group = g.client_group
  where o.f = 'deliver' and g.kind <> 'broadcast' and not g.of_some_tags
    and (g.at_least_once or g.retries_max is not null)
),
commits as (
  select
    o.client_group, o.client, o.op, o.broker_group, o.topic, o.queue, o.offset, o.type, o.t_invoke
  from ops o
  left semi join members m on o.client_group = m.client_group
  left semi join run_group_topics t on o.client_group = t.client_group and o.topic = t.topic
  join queues q on o.broker_group = q.broker_group and o.topic = q.topic and o.queue = q.queue
  left anti join (select distinct client from ops where f = 'poll') p on o.client = p.client
  left anti join (select * from group_resets where not by_member) r
    on o.client_group = r.client_group and o.broker_group = r.broker_group
    and o.topic = r.topic and o.queue = r.queue
  left anti join reset_spans k
    on o.client_group = k.client_group and o.broker_group = k.broker_group
    and o.topic = k.topic and o.queue = k.queue and k.t_invoke <= o.t_invoke
    and coalesce(o.offset <= k.offset, true)
  where o.f = 'commit_offset' and o.offset > q.floor
),
given as (
  select r.client_group, r.broker_group, r.topic, r.queue, r.offset, min(r.t_complete) as t_given
  from reads r
  join members m on r.client_group = m.client_group
  where r.f = 'deliver' and r.offset is not null and r.t_complete is not null
    and (
      r.type = 'ok'
      or (
        r.type = 'fail'
        and (
          not coalesce(m.exclusive, false)
          or coalesce(r.reconsume, 0) >= coalesce(m.retries_max, cast(1000000 as bigint))
        )
      )
    )
  group by r.client_group, r.broker_group, r.topic, r.queue, r.offset
)
select
  c.client_group, c.client, c.broker_group, c.topic, c.queue, c.offset, c.op, c.type, c.t_invoke,
  g.t_given
from commits c
left join given g
  on c.client_group = g.client_group and c.broker_group = g.broker_group and c.topic = g.topic
  and c.queue = g.queue and g.offset = c.offset - 1
cross join run_settings s
where g.t_given is null or g.t_given > c.t_invoke + coalesce(s.clock_error_ns, cast(0 as bigint))
