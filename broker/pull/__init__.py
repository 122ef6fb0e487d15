"""Pulls and offsets of consumers that own queues, and the queries about a queue's ends.

May import: `broker.entry`, `broker.leader`, `broker.queues`, `broker.request`, `raft`, `remoting`.
"""
