-- Rows that no rule can be asked about: their words are not the format's, or they contradict
-- themselves. Each is an error of whoever recorded the run. `damaged` is the kind of what could not
-- be read of a store.
with strange as (
  select *
  from (
    select
      op, f, type, t_invoke, t_complete,
      coalesce(f, '') not in (
        'send', 'half', 'local', 'decide', 'check', 'poll', 'deliver', 'commit_offset', 'fetch_offset',
        'max_offset', 'assign', 'query', 'delay', 'recall', 'pop', 'ack', 'change', 'request', 'reset',
        'search', 'create_topic', 'delete_topic', 'route', 'account',
        'lock', 'unlock', 'reply', 'assignment', 'create_group', 'delete_group', 'group',
        'ask', 'set', 'get', 'discard'
      ) as is_unknown
    from ops
  ) told
  where is_unknown or coalesce(type, '') not in ('ok', 'fail', 'info')
    or t_invoke is null or t_complete < t_invoke or (type = 'ok' and t_complete is null)
),
strange_events as (
  select *
  from (
    select
      seq, event, role,
      coalesce(event, '') not in (
        'start', 'role', 'vote', 'append', 'truncate', 'fsync', 'commit', 'apply', 'config', 'install',
        'read', 'state'
      ) as is_unknown,
      coalesce(event, '') = 'role'
        and coalesce(role, '') not in ('leader', 'follower', 'candidate') as is_no_role,
      broker_group is null or node is null or seq is null or t is null as is_nobody
    from raft
  ) told
  where is_unknown or is_no_role or is_nobody
),
strange_records as (
  select *
  from (
    select
      index, kind, decision,
      coalesce(kind, '') not in (
        'message', 'half', 'op', 'final', 'offset', 'pop', 'ack', 'change', 'config', 'noop',
        'command', 'damaged'
      ) as is_unknown,
      coalesce(decision, 'commit') not in ('commit', 'rollback') as is_no_decision,
      broker_group is null or node is null or index is null as is_nobody
    from log
  ) told
  where is_unknown or is_no_decision or is_nobody
)
select 'ops' as in_table, 'f' as what, coalesce(f, 'null') as found, op as at
from strange
where is_unknown
union all
select 'ops', 'type', coalesce(type, 'null'), op
from strange
where coalesce(type, '') not in ('ok', 'fail', 'info')
union all
select 'ops', 'op', 'one that stands twice, or is null', op
from ops
group by op
having count(*) > 1 or op is null
union all
select 'ops', 't_invoke', 'null', op
from strange
where t_invoke is null
union all
select 'ops', 't_complete', 'before t_invoke', op
from strange
where t_complete < t_invoke
union all
select 'ops', 't_complete', 'null, of type ok', op
from strange
where type = 'ok' and t_complete is null
union all
select 'ops', 'decision', decision, op
from ops
where f in ('local', 'decide', 'check') and decision not in ('commit', 'rollback', 'unknown')
union all
select 'raft', 'event', coalesce(event, 'null'), seq
from strange_events
where is_unknown
union all
select 'raft', 'role', coalesce(role, 'null'), seq
from strange_events
where is_no_role
union all
select 'raft', 'broker_group, node, seq or t', 'null', seq
from strange_events
where is_nobody
union all
select 'log', 'kind', coalesce(kind, 'null'), index
from strange_records
where is_unknown
union all
select 'log', 'decision', decision, index
from strange_records
where is_no_decision
union all
select 'log', 'broker_group, node or index', 'null', index
from strange_records
where is_nobody
union all
select 'cq', 'broker_group, node, topic, queue or queue_offset', 'null', queue_offset
from cq
where broker_group is null or node is null or topic is null or queue is null or queue_offset is null
union all
select 'faults', 'effect', coalesce(effect, 'null'), fault
from faults
where coalesce(effect, '') not in ('taken', 'not_taken', 'unknown')
