"""Members of producer and consumer groups: heartbeats, locks on queues, who is there.

May import: `broker.entry`, `broker.leader`, `broker.queues`, `broker.request`, `broker.send`,
  `broker.state`, `raft`, `remoting`.
"""
