"""The algorithm: elections, replication, reads, membership, as one state machine without IO.

Events and the time go in, a `Ready` comes out: what to persist, to send, to apply. Pure.

`core` owns term, vote, role, commit index and the configuration in force. The other modules are its
parts: `elections`, `vote_tally` and `election_timer` (who campaigns, who is elected),
`follower_role` and `leader_role` (what each does with a message), `progress` (what a leader knows
of one peer), `read_rounds` (ReadIndex), `handover` (leadership transfer), `quorum`,
`configurations` and `membership_rules` (who belongs to the group, which change is allowed now),
`raft_log` (the log as the core sees it) and `ready_builder` (what the current step will hand out).
The core also decides when a follower needs a snapshot.

It never does IO, reads a clock or draws a random number of its own.

May import: `raft`.
"""
