-- C9: reset not followed
-- promise: G5
-- needs: ops
-- wants: log
-- applies: select (select coalesce(sum(ops), 0) from op_counts where f = 'reset' and type <> 'fail') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'reset' and type = 'ok'
-- nothing: no reset was answered
-- holds: A group that was reset went on where it was sent.
-- rule: Of an administrator's ok reset that no other one of the group and queue overlaps or follows:
--   a message that stands at its offset or behind was delivered to nobody after its invoke, though
--   the queue was drained; unless a commit of unknown outcome (one that rode on a poll is) wrote a
--   higher offset, a member went behind the message by itself, or a member that had the queue before
--   the reset, with no assign since, went on behind the message after another member had followed
--   the reset (two had the queue: A22). Or a message before it was delivered ten seconds after the
--   reset or later; unless a commit of a lower offset ended after the group had gone on behind it, or
--   a member had gone to the message or before it by itself. Of a member's own ok reset: the next
--   message of the queue that its client was delivered, with no assign of the client between, and no
--   other reset of it or of an administrator, is not the first that stands at its offset or behind.
--   Groups with tags may pass over what has others.
-- source: RocketMQ AdminBrokerProcessor.resetOffset, DefaultLitePullConsumer.seek
with line as (
  select
    *,
    max(t_end) over (
      partition by client_group, broker_group, topic, queue order by t_invoke, op
      rows between unbounded preceding and 1 preceding
    ) as t_before,
    lead(op) over (
      partition by client_group, broker_group, topic, queue order by t_invoke, op
    ) as next_op
  from group_resets
  where not by_member
),
lasts as (
  select *
  from line
  where type = 'ok' and offset is not null and next_op is null
    and coalesce(t_before, cast(-1 as bigint)) <= t_invoke
),
-- Where members went by themselves behind a reset; anywhere, where no offset is told.
sought as (
  select
    l.op, m.t_invoke, coalesce(m.offset, cast(0 as bigint)) as at_least,
    coalesce(m.offset, cast(9223372036854775807 as bigint)) as at_most
  from lasts l
  join group_resets m
    on l.client_group = m.client_group and l.broker_group = m.broker_group
    and l.topic = m.topic and l.queue = m.queue and m.by_member and m.t_end >= l.t_invoke
),
shown as (
  select
    r.client_group, r.broker_group, r.topic, r.queue, r.offset, r.value, r.op, r.client, r.t_invoke,
    r.t_complete, r.type
  from reads r
  left semi join group_resets g
    on r.client_group = g.client_group and r.broker_group = g.broker_group
    and r.topic = g.topic and r.queue = g.queue
  where r.f = 'deliver' and r.offset is not null
),
-- Of an offset that rode on a poll nobody tells what became.
commits as (
  select o.client_group, o.broker_group, o.topic, o.queue, o.offset, o.type, o.t_complete
  from (
    select client_group, broker_group, topic, queue, offset, type, t_complete
    from ops
    where f = 'commit_offset' and type <> 'fail'
    union all
    select client_group, broker_group, topic, queue, commit_offset, 'info', null
    from ops
    where f = 'poll' and commit_offset is not null
  ) o
  left semi join lasts l
    on o.client_group = l.client_group and o.broker_group = l.broker_group
    and o.topic = l.topic and o.queue = l.queue
),
followed as (
  select
    l.op,
    min(case when s.offset >= l.offset and s.t_invoke >= l.t_invoke then s.t_invoke end) as t_followed
  from lasts l
  left join shown s
    on l.client_group = s.client_group and l.broker_group = s.broker_group
    and l.topic = s.topic and l.queue = s.queue
  group by l.op
),
places as (
  select distinct s.broker_group, s.topic, s.queue, s.offset, s.value
  from standing s
  left semi join group_resets g
    on s.broker_group = g.broker_group and s.topic = g.topic and s.queue = g.queue
  where s.on_user_topic
),
owners as (
  select
    l.op, s.client,
    max(case when s.t_invoke < l.t_invoke then s.t_invoke end) as t_held,
    min(case when s.offset >= l.offset and s.t_invoke >= l.t_invoke then s.t_invoke end) as t_followed
  from lasts l
  join shown s
    on l.client_group = s.client_group and l.broker_group = s.broker_group
    and l.topic = s.topic and l.queue = s.queue
  group by l.op, s.client
),
-- Members that still had the queue when another one followed the reset: brokers send one member
-- back, and to the other the queue goes on where it was.
passed_over as (
  select l.op, min(s.offset) as offset
  from (
    select o.op, o.client, min(f.t_followed) as t_from
    from owners o join owners f on o.op = f.op
    where o.t_held is not null and f.client <> o.client and f.t_followed is not null
    group by o.op, o.client
  ) a
  join lasts l on a.op = l.op
  join shown s
    on a.client = s.client and l.client_group = s.client_group
    and l.broker_group = s.broker_group and l.topic = s.topic and l.queue = s.queue
    and s.t_invoke > a.t_from
  left anti join (select client, client_group, t_invoke from ops where f = 'assign' and type <> 'fail') n
    on s.client = n.client and s.client_group = n.client_group
    and n.t_invoke > l.t_invoke and n.t_invoke <= s.t_invoke
  group by l.op
),
unshown as (
  select l.op, min(p.offset) as offset
  from lasts l
  left anti join (select client_group from run_groups where of_some_tags) g
    on l.client_group = g.client_group
  join places p
    on l.broker_group = p.broker_group and l.topic = p.topic and l.queue = p.queue
    and p.offset >= l.offset
  join queues q
    on l.broker_group = q.broker_group and l.topic = q.topic and l.queue = q.queue
    and q.was_drained and p.offset >= q.floor and p.offset < q.max_offset
  left anti join shown s
    on l.client_group = s.client_group and p.broker_group = s.broker_group
    and p.topic = s.topic and p.queue = s.queue and p.offset = s.offset
    and s.t_complete >= l.t_invoke
  left anti join (select * from commits where type = 'info') c
    on l.client_group = c.client_group and l.broker_group = c.broker_group
    and l.topic = c.topic and l.queue = c.queue and c.offset > l.offset
  left anti join passed_over v on l.op = v.op and v.offset > p.offset
  left anti join sought m on l.op = m.op and m.at_most > p.offset
  group by l.op
),
behind as (
  select l.op, min(s.op) as shown_op
  from lasts l
  join followed f on l.op = f.op
  join shown s
    on l.client_group = s.client_group and l.broker_group = s.broker_group
    and l.topic = s.topic and l.queue = s.queue
    and s.offset < l.offset and s.t_invoke > l.t_complete + 10000000000
  left anti join (
    select
      k.op as reset_op
    from lasts k
    join followed t on k.op = t.op
    join commits c
      on k.client_group = c.client_group and k.broker_group = c.broker_group
      and k.topic = c.topic and k.queue = c.queue and c.offset < k.offset
    where c.type = 'info' or c.t_complete >= t.t_followed
  ) x on l.op = x.reset_op
  left anti join sought m on l.op = m.op and m.t_invoke < s.t_invoke and m.at_least <= s.offset
  group by l.op
),
seeks as (
  select r.*, min(s.op) as shown_op
  from group_resets r
  join shown s
    on r.client_group = s.client_group and r.client = s.client
    and r.broker_group = s.broker_group and r.topic = s.topic and r.queue = s.queue
    and s.op > r.op
  where r.by_member and r.type = 'ok' and r.offset is not null
  group by
    r.op, r.process, r.client, r.client_group, r.broker_group, r.topic, r.queue, r.offset, r.type,
    r.t_invoke, r.t_complete, r.t_end, r.by_member
),
-- What came between a seek and the next delivery makes another position of it, as does what an
-- administrator's reset may have done by then that was still open.
disturbed as (
  select k.op
  from seeks k
  join ops o on k.client = o.client and k.client_group = o.client_group
  where o.f = 'assign' and o.type <> 'fail' and o.op > k.op and o.op < k.shown_op
  union
  select k.op
  from seeks k
  join group_resets r
    on k.client_group = r.client_group and k.broker_group = r.broker_group
    and k.topic = r.topic and k.queue = r.queue
  where r.op < k.shown_op and (
    (r.client = k.client and r.op > k.op)
    or (not r.by_member and r.t_end >= k.t_invoke)
  )
),
went as (
  select
    k.op, k.shown_op, k.offset as asked_offset, min(s.offset) as shown_offset,
    min(p.offset) as first_offset
  from seeks k
  left anti join disturbed d on k.op = d.op
  -- One that was invoked before the seek had ended may be of the old position, or of the new one.
  join shown s on k.shown_op = s.op and s.t_invoke > k.t_complete
  left join places p
    on k.broker_group = p.broker_group and k.topic = p.topic and k.queue = p.queue
    and p.offset >= k.offset
  group by k.op, k.shown_op, k.offset
)
select
  l.client_group, l.broker_group, l.topic, l.queue, l.op,
  'nobody was delivered what stands there' as problem, l.offset, u.offset as found_offset,
  cast(null as bigint) as shown_op, l.client, l.t_invoke, l.t_complete
from lasts l join unshown u on l.op = u.op
union all
select
  l.client_group, l.broker_group, l.topic, l.queue, l.op, 'the group went on before it', l.offset,
  s.offset, b.shown_op, l.client, l.t_invoke, l.t_complete
from lasts l
join behind b on l.op = b.op
join (select op, min(offset) as offset from shown group by op) s on b.shown_op = s.op
union all
select
  k.client_group, k.broker_group, k.topic, k.queue, k.op, 'the member went on elsewhere', k.offset,
  w.shown_offset, w.shown_op, k.client, k.t_invoke, k.t_complete
from seeks k
join went w on k.op = w.op
left join run_groups g on k.client_group = g.client_group
where
  w.first_offset is null
  or w.shown_offset < w.first_offset
  or (w.shown_offset > w.first_offset and not coalesce(g.of_some_tags, false))
