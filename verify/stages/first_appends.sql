-- When an entry, by index and term, was first appended anywhere in its group: from then on its
-- records may be seen.
select broker_group, index, entry_term as term, min(t) as t_append
from raft
where event = 'append' and entry_term is not null
group by broker_group, index, entry_term
