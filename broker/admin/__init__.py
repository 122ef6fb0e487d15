"""What administrators ask: topics, progress, members, statistics, maintenance, files.

May import: `broker.config`, `broker.entry`, `broker.queues`, `broker.request`, `broker.state`,
  `broker.transaction`, `raft`, `remoting`.
"""
