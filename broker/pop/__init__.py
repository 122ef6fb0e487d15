"""POP: consumers without queues of their own; the broker keeps who holds which message.

May import: `broker.entry`, `broker.leader`, `broker.queues`, `broker.request`, `broker.state`,
  `raft`, `remoting`.
"""
