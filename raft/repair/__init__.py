"""Entries of this node's log that are damaged, asked for at its peers and put in their place.

May import: `raft`, `raft.log`.
"""
