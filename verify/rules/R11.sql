-- R11: vote for an older log
-- promise: G1
-- needs: raft
-- reaches: yes
-- applies: select coalesce(bool_or(engine = 'raft'), false) from run_settings
-- examined: select coalesce(sum(events), 0) from event_counts where event = 'vote'
-- nothing: no vote was traced
-- holds: Votes went only to candidates with a log as new.
-- rule: A vote for a candidate whose log is behind the voter's own. Only the first time that a vote
--   is told: when it is sent again the voter's log may have grown. A vote is told once it is
--   durable, which may be after entries of its own term have come from the leader that others
--   elected meanwhile: those say nothing about the log that was voted on. Nor does a truncation,
--   whose new last term is not told.
-- source: Raft, 5.4.1
with votes as (
  select broker_group, node, term, peer, min(seq) as seq
  from raft
  where event = 'vote' and peer <> node
  group by broker_group, node, term, peer
),
told as (
  select
    v.broker_group, v.node, v.seq, t.t, v.term, v.peer,
    greatest(coalesce(t.log_seq, cast(-1 as bigint)), coalesce(t.install_seq, cast(-1 as bigint))) as own_seq
  from votes v join turning_points t on v.broker_group = t.broker_group and v.node = t.node and v.seq = t.seq
)
select
  v.broker_group, v.node, v.seq, v.t, v.term, v.peer, c.last_term, c.last_index,
  own.entry_term as own_last_term, own.index as own_last_index
from told v
join raft c on v.broker_group = c.broker_group and v.node = c.node and v.seq = c.seq
join raft own on v.broker_group = own.broker_group and v.node = own.node and v.own_seq = own.seq
where own.event <> 'truncate' and own.entry_term < v.term
  and (c.last_term < own.entry_term or (c.last_term = own.entry_term and c.last_index < own.index))
