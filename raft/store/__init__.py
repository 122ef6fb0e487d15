"""One node's directory, opened together: log, hard state, identity, checkpoint, snapshots, trace.

`node_store` opens everything in its order, `store_lock` keeps a second process out, `identity` says
which store this is and whether it is born, `checkpoint` remembers what was committed so that a
restart can apply at once, `restore` reads the newest good snapshot and says where replay begins,
`trace` writes what the node's log and role did.

The room never acts on bytes that only the page cache holds (decision 22), and never takes the
checkpoint for more than a hint.

May import: `raft`, `raft.log`, `raft.snapshots`.
"""
