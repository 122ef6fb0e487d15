-- What a node knew when an event came, from what its trace told before in that incarnation: one row
-- per event, but for fsyncs, reads and states, which change nothing of it. All of it is null where
-- nothing was told. `was_leader`; `config_seq`: the event that brought the configuration in force;
-- `log_end`: the last append, start or truncation's last index, told at `log_seq`; `installed`: the
-- last install's index, told at `install_seq`; `committed` and `applied`: the node's commit index
-- and what it had applied; `term_committed`: the last term in which it committed an entry of that
-- term. An install may or may not have kept what stood behind it, so that the last entry's index
-- lies between `last_index_least` and `last_index_most`.
-- kept: no
with told as (
  select
    broker_group, node, incarnation, seq, t, event, term, index, first, entry_term, role,
    case
      when event in ('append', 'start') then index
      when event = 'truncate' then index - 1
    end as end_told
  from raft
  where event in ('start', 'role', 'vote', 'append', 'truncate', 'commit', 'apply', 'config', 'install')
),
known as (
  select
    broker_group, node, incarnation, seq, t, event, term, index, first, entry_term, role,
    max(case when event = 'start' or (event = 'role' and role is not null) then seq end) over before as role_seq,
    max(case when event = 'role' and role = 'leader' then seq end) over before as leader_seq,
    max(case when event in ('start', 'config') then seq end) over before as config_seq,
    last_value(end_told) ignore nulls over before as log_end,
    max(case when end_told is not null then seq end) over before as log_seq,
    max(case when event = 'install' then index end) over before as installed,
    max(case when event = 'install' then seq end) over before as install_seq,
    max(case when event in ('commit', 'install') then index end) over before as committed,
    last_value(case when event in ('apply', 'install') then index end) ignore nulls over before as applied,
    max(case when event = 'commit' and entry_term = term then term end) over before as term_committed
  from told
  window before as (
    partition by broker_group, node, incarnation order by seq
    rows between unbounded preceding and 1 preceding
  )
)
select
  broker_group, node, incarnation, seq, t, event, term, index, first, entry_term, role,
  case when role_seq is not null then coalesce(leader_seq = role_seq, false) end as was_leader,
  config_seq, log_end, log_seq, installed, install_seq, committed, applied, term_committed,
  case when install_seq > coalesce(log_seq, cast(-1 as bigint)) then installed else log_end end as last_index_least,
  case when log_end is not null then greatest(log_end, coalesce(installed, log_end)) end as last_index_most
from known
