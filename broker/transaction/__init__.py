"""Transactional messages: their decisions, and the check-back of halves that wait for one.

May import: `broker.delay`, `broker.entry`, `broker.leader`, `broker.request`, `broker.state`,
  `raft`, `remoting`.
"""
