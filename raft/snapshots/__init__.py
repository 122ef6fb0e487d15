"""Snapshots: written, kept, sent to followers that are too far behind, and installed by them.

May import: `raft`, `raft.log`.
"""
