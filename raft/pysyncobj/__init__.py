"""PySyncObj behind the same seam: the other engine of the fault matrix, not for keeping data.

`log` implements `raft.replicated_log` on it, `engine` runs PySyncObj on a thread of its own,
`chained_entry` makes its commands name the log that they were made for, `store` and `config` are
what such a node has on disk and in its settings. Decision 11 has what PySyncObj can't give, and
what is done about it.

It takes no membership changes, snapshots or retention.

May import: `raft`, `raft.log`, `raft.store`.
"""
