"""Entries of this node's log that are damaged, requested from its peers and put in their place.

`log_repairer` finds damage before a reader does and fetches good copies; `repair_plan` decides from
which peer to request them, and when; `reminders` decides how often a lasting trouble is logged
again (decision 6).

The room never drops an entry that was durable, unless a peer's committed entry proves that it was
never committed.

May import: `raft`, `raft.log`.
"""
