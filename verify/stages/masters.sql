-- Each time that a node said it was its group's master, or leader.
select broker_group, node, t, seq from raft where event = 'role' and role = 'leader'
