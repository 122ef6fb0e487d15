"""Snapshots: written, kept, sent to followers that are too far behind, and installed by them.

`snapshot` is the file format, `snapshot_keeper` decides when the state is written and what the log
must keep for it, `install` sends and receives a snapshot in pieces, `install_stream` is its asyncio
side; `state_digest` says what a state is known by.

The room never looks into the state: to it a snapshot's content is bytes.

May import: `raft`, `raft.log`.
"""
