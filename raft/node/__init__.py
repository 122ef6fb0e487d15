"""A running node: the core, its store and its peers on an event loop, with fsyncs beside it.

`node` is what a broker starts: it puts the parts together and takes them through their phases.
`core_shell` carries a `Ready` out in the order that Raft demands: what depends on an fsync leaves
after it, and only what is committed is applied. Around it stand `group_commit` (rounds of fsync
beside the loop), `applier` (committed entries to the state machine, answers to their proposals),
`open_calls` (proposals and reads that wait), `attended_clock` (the core's time) and `trace_events`
(the trace). Timers, a disk without room and a disk that hangs are this room's business.

It never branches on protocol state: what is to be done is decided in `raft.core`.

May import: `raft`, `raft.bootstrap`, `raft.core`, `raft.log`, `raft.peers`, `raft.repair`,
  `raft.snapshots`, `raft.store`.
"""
