"""One node's directory, opened together: log, hard state, identity, checkpoint, snapshots, trace.

May import: `raft`, `raft.log`, `raft.snapshots`.
"""
