-- T6: orphan half
-- promise: G4
-- needs: ops, log, raft
-- applies: select (select bool_or(has_transactions) from run_settings)
--   and (select coalesce(sum(ops), 0) from op_counts where f = 'check') > 0
-- examined: select coalesce(sum(ops), 0) from op_counts where f = 'half'
-- nothing: no transaction was begun
-- holds: Every undecided transaction was asked about or discarded in time.
-- rule: In a stretch of the timeout and two check intervals that begins with a half's ack or with its
--   last check, an undecided half was neither asked about nor discarded. Its clock stands while its
--   group has no leader (from the last commit that was news before a role-leader event to that) or
--   none of its producers can be seen to reach it (for more than a check interval no operation of
--   theirs at that group ended ok, or one client's last had ended and no other's first); behind each
--   such stop but the first it has a check interval more, since the broker looks once in each, and
--   one more if the last operation of one of the clients lies in the stretch with no stop behind
--   it, since the check may have been sent to that client as it ended; a half whose time is not up
--   when the heal begins has all of it from there.
-- source: RocketMQ issues 544, 9500, 1568, 1694
with
-- Commits that were news to the group: a node that starts anew tells again of what it finds committed.
risen as (
  select broker_group, t, node, seq
  from (
    select
      r.broker_group, r.t, r.node, r.seq, r.index,
      max(r.index) over (
        partition by r.broker_group order by r.t, r.node, r.seq
        rows between unbounded preceding and 1 preceding
      ) as index_before
    from raft r left semi join undecided_stretches p on r.broker_group = p.broker_group
    where r.event = 'commit'
  ) c
  where index_before is null or index > index_before
),
elections as (
  select broker_group, t, t_before
  from (
    select
      broker_group, turn, t,
      max(case when turn = 1 then t end) over (
        partition by broker_group order by t, turn, node, seq
        rows between unbounded preceding and 1 preceding
      ) as t_before
    from (
      select broker_group, t, node, seq, 1 as turn from risen
      union all
      select r.broker_group, r.t, r.node, r.seq, 0
      from raft r left semi join undecided_stretches p on r.broker_group = p.broker_group
      where r.event = 'role' and r.role = 'leader'
    ) told
  ) e
  where turn = 0
),
pairs as (select distinct broker_group, client_group, check_interval_ns from undecided_stretches),
-- What a producer asks in vain tells nothing of it: who is cut from the leader goes on asking, and no
-- question reaches it. What it does by itself is answered by nobody.
heard as (
  select p.broker_group, p.client_group, coalesce(o.client, '') as client, o.t_complete, o.op
  from pairs p join ops o
    on p.client_group = coalesce(o.client_group, '')
    and p.broker_group = coalesce(o.broker_group, p.broker_group)
  where o.type = 'ok' and o.f <> 'local'
),
silences as (
  select broker_group, client_group, t_before, t_answered
  from (
    select
      broker_group, client_group, t_complete as t_answered,
      lag(t_complete) over (
        partition by broker_group, client_group order by t_complete, op
      ) as t_before
    from heard
  ) s
  where t_before is not null
),
lives as (
  select broker_group, client_group, client, min(t_complete) as t_first, max(t_complete) as t_last
  from heard
  group by broker_group, client_group, client
),
-- Times between the lives of a group's clients: nobody is there to be asked, however short they are.
absences as (
  select broker_group, client_group, t_before, t_first
  from (
    select
      broker_group, client_group, t_first,
      max(t_last) over (
        partition by broker_group, client_group order by t_first, t_last, client
        rows between unbounded preceding and 1 preceding
      ) as t_before
    from lives
  ) l
  where t_first > t_before
),
stops as (
  select p.broker_group, p.client_group, coalesce(e.t_before, cast(0 as bigint)) as t_from, e.t as t_to
  from elections e join pairs p on e.broker_group = p.broker_group
  union all
  select p.broker_group, p.client_group, s.t_before, s.t_answered
  from silences s join pairs p
    on s.broker_group = p.broker_group and s.client_group = p.client_group
  where s.t_answered - s.t_before > p.check_interval_ns
  union all
  select broker_group, client_group, t_before, t_first from absences
),
-- Stops that overlap are cut, so that no time stands still twice; what goes on is no stop of its own.
pieces as (
  select
    broker_group, client_group, greatest(t_from, ended) as t_from, t_to,
    case when t_from <= ended then 0 else 1 end as begins
  from (
    select
      broker_group, client_group, t_from, t_to,
      max(t_to) over (
        partition by broker_group, client_group order by t_from, t_to
        rows between unbounded preceding and 1 preceding
      ) as ended
    from stops
  ) s
  where t_to > greatest(t_from, ended)
),
-- How long and how often the clock had stood by the beginning and the end of each part; a stop that
-- lasts at its beginning is one of the part's own.
clocks as (
  select
    tx, begun, part_from, side,
    coalesce(stops, 0) - case when side = 0 and coalesce(stood_to, at) > at then 1 else 0 end as stops,
    at - cast(coalesce(stood, 0) as bigint) + greatest(coalesce(stood_to, cast(0 as bigint)) - at, cast(0 as bigint)) as shown
  from (
    select
      *,
      sum(length) over told_before as stood,
      max(piece_to) over told_before as stood_to,
      sum(begins) over told_before as stops
    from (
      select
        broker_group, client_group, t_from as at, 0 as turn, t_to - t_from as length, t_to as piece_to,
        begins,
        cast(null as string) as tx, cast(null as bigint) as begun, cast(null as bigint) as part_from,
        cast(null as int) as side
      from pieces
      union all
      select broker_group, client_group, t_from, 1, null, null, null, tx, begun, t_from, 0 from undecided_stretches
      union all
      select broker_group, client_group, t_to, 1, null, null, null, tx, begun, t_from, 1 from undecided_stretches
    ) told
    window told_before as (
      partition by broker_group, client_group order by at, turn, tx, begun, part_from, side
      rows between unbounded preceding and 1 preceding
    )
  ) clocked
  where turn = 1
),
counted as (
  select
    tx, begun, part_from,
    max(case when side = 1 then shown end) - max(case when side = 0 then shown end) as waited,
    max(case when side = 1 then stops end) - max(case when side = 0 then stops end) as stops
  from clocks
  group by tx, begun, part_from
),
-- Clients that ended while others went on: what a broker had sent them in that moment is lost.
ends as (
  select l.broker_group, l.client_group, l.t_last
  from lives l
  left anti join stops s
    on l.broker_group = s.broker_group and l.client_group = s.client_group and l.t_last = s.t_from
),
sent_in_vain as (
  select distinct p.tx, p.begun, p.t_from
  from undecided_stretches p
  join ends e
    on p.broker_group = e.broker_group and p.client_group = e.client_group
    and e.t_last > p.t_from and e.t_last <= p.t_to - p.check_interval_ns
),
judged as (
  select
    p.*, c.waited,
    p.span + p.check_interval_ns * (
      greatest(cast(c.stops as bigint) - 1, cast(0 as bigint))
      + case when v.tx is null then 0 else 1 end
    ) as allowed
  from undecided_stretches p
  join counted c on p.tx = c.tx and p.begun = c.begun and p.t_from = c.part_from
  left join sent_in_vain v on p.tx = v.tx and p.begun = v.begun and p.t_from = v.t_from
)
select tx, t_from, since, t_to, begun, waited, allowed, broker_group, client_group
from judged
where waited > allowed
