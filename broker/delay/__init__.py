"""Delayed messages: levels, times of their own, where they wait, their delivery and their recall.

May import: `broker.entry`, `broker.leader`, `broker.request`, `raft`, `remoting`.
"""
