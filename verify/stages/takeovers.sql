-- Each time that another node than before said it was its group's master: which one it was before;
-- the last entry that the new one had told by then, by an append or a start; and the furthest that
-- any third node of the group had told. Null: nothing was told.
with changes as (
  select broker_group, node, t, node_before
  from (
    select
      broker_group, node, t,
      lag(node) over (partition by broker_group order by t, node, seq) as node_before
    from masters
  ) m
  where node_before <> node
),
ends as (
  select
    c.broker_group, c.node, c.t, c.node_before, r.node as other, max_by(r.index, r.seq) as index
  from changes c join raft r on c.broker_group = r.broker_group
  where r.event in ('append', 'start') and r.t <= c.t
  group by c.broker_group, c.node, c.t, c.node_before, r.node
)
select
  broker_group, node, t, node_before,
  max(case when other = node then index end) as index,
  max(case when other <> node and other <> node_before then index end) as others_index
from ends
group by broker_group, node, t, node_before
