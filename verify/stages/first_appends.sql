-- When an entry, by index and term, was first appended anywhere in its group: from then on its
-- records may be seen. Where several had that index and term, as behind a change of a master that
-- nobody elected, and some log has one of them, the others do not count.
-- parts: index
with reused as (
  select broker_group, index, entry_term
  from entries
  group by broker_group, index, entry_term
  having count(*) > 1 and bool_or(is_logged)
),
gone as (
  select e.broker_group, e.index, e.entry_term, e.chain
  from entries e
  join reused u
    on e.broker_group = u.broker_group and e.index = u.index and e.entry_term = u.entry_term
  where not e.is_logged
)
select r.broker_group, r.index, r.entry_term as term, min(r.t) as t_append
from raft r
left anti join gone g
  on r.broker_group = g.broker_group and r.index = g.index and r.entry_term = g.entry_term
  and r.chain = g.chain
where r.event = 'append' and r.entry_term is not null
group by r.broker_group, r.index, r.entry_term
