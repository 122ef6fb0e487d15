"""Clusters of processes on this host: laid out, started, signalled, asked, taken down.

May import: `broker`, `raft`, `remoting`.
"""
