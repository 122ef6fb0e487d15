"""What a broker is told at its start or while it runs: configuration, settings, retention.

May import: `broker.entry`, `broker.leader`, `broker.state`, `raft`, `remoting`.
"""
