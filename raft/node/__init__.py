"""A running node: the core, its store and its peers on an event loop, with fsyncs beside it.

`node` is what a broker starts: it puts the parts together and takes them through their phases,
with `introductions` (how a store is admitted), `state_install` (what a leader's snapshot brings)
and `log_compaction` (retention) beside it.
`core_shell` carries a `Ready` out in the order that Raft demands: what depends on an fsync leaves
after it, and only what is committed is applied. Around it stand `group_commit` (rounds of fsync
beside the loop), `apply_schedule` (when committed entries are applied) and `applier` (that they
are, and their proposals answered), `open_proposals` and `read_points` (calls that wait),
`log_room` and `leadership_transfer` (a disk without room, or one that hangs), `node_status` (what
the node reports of itself), `attended_clock` and `core_timer` (the core's time) and `trace_events`
(the trace).

It never branches on protocol state: what is to be done is decided in `raft.core`.

May import: `raft`, `raft.bootstrap`, `raft.core`, `raft.log`, `raft.peers`, `raft.repair`,
  `raft.snapshots`, `raft.store`.
"""
