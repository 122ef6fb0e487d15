"""Parts that handlers of all subjects share: requests, answers, commits, read points, clients.

A handler takes the one, two or three that it uses of: `replica`, what every replica reads;
`leadership`, whether this node leads and what it holds while it does; `desk`, the clients of this
process and what waits for them. `request` is what it answers; `commit` and `proposal_answers` turn
the log's word on a proposal into RocketMQ's answer; `read_point` lets only a proven leader answer;
`forwarding` sends a request to the leader in the place of a client whose route is old (decision
19). `clients`, `known_groups`, `stats`, `pull_offsets` and `queue_times` are this process's
knowledge, and are lost with it; `long_polling` and `pop_polling` hold pulls and pops until a
message arrives; `clock_exchange` queries the clocks of the other replicas; `deleted_topics` says
which of what waits was sent to a topic that is gone; `room` what the disk has room for; `tasks`
ends what was started with the broker.

Nothing here changes replicated state but through a proposal.

May import: `broker.config`, `broker.entry`, `broker.leader`, `broker.queues`, `broker.state`,
  `raft`, `remoting`.
"""
