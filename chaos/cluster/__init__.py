"""Clusters of processes on this host: laid out, started, signalled, queried, taken down.

`layout` names nodes, addresses and files from a few numbers; `processes` starts, watches and stops
them, with `parent_death` and `stop_signals` so that they end with their command; `cluster`, `nodes`
and `members` are a person's commands; `broker_status` and `access` query a node.

May import: `broker`, `raft`, `remoting`.
"""
