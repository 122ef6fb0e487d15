"""What ends with leadership: proposals under way, and locks that only a leader knows.

May import: `broker.entry`, `broker.state`, `raft`.
"""
