"""Sends: from a request to stored messages, their duplicates, send-backs and replies.

May import: `broker.delay`, `broker.entry`, `broker.leader`, `broker.request`, `broker.state`,
  `raft`, `remoting`.
"""
