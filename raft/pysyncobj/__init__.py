"""PySyncObj behind the same seam: the other engine of the fault matrix, not for keeping data.

May import: `raft`, `raft.log`, `raft.store`.
"""
