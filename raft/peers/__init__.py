"""Connections between the nodes of a group: who may speak, frames, and how messages are written.

May import: `raft`.
"""
