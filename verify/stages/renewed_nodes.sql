-- Nodes whose store a fault may have replaced by an empty one, and from when on: such a node is
-- another member of the same name. `target` is GROUP-NODE, as faults name it.
with taken_apart as (
  select t_start, posexplode(targets) as (place, target)
  from faults
  where effect <> 'not_taken' and name in (
    'remove-follower', 'remove-leader', 'replace-member', 'wiped-store', 'lost-machine', 'old-copy',
    'change-while-cut', 'add-learner', 'add-voter'
  )
)
select target, min(t_start) as t_from
from taken_apart
where target is not null
group by target
