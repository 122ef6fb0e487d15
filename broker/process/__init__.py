"""The running broker: its server, the table of its requests, registration, housekeeping.

May import: `broker.access`, `broker.admin`, `broker.config`, `broker.delay`, `broker.entry`,
  `broker.groups`, `broker.index`, `broker.leader`, `broker.pop`, `broker.pull`, `broker.queues`,
  `broker.request`, `broker.send`, `broker.state`, `broker.transaction`, `raft`, `remoting`.
"""
