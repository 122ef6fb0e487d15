"""A running node: the core, its store and its peers on an event loop and a thread that fsyncs.

`node` is what a broker starts; `core_shell` carries a `Ready` out, in the order that Raft demands.

May import: `raft`, `raft.bootstrap`, `raft.core`, `raft.log`, `raft.peers`, `raft.repair`,
  `raft.snapshots`, `raft.store`.
"""
