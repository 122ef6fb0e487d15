"""What handlers of all subjects share: a request and its answer, commits, read points, clients.

May import: `broker.config`, `broker.entry`, `broker.leader`, `broker.queues`, `broker.state`,
  `raft`, `remoting`.
"""
