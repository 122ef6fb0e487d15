"""What a replica derives of its log on disk, and how it is read: ConsumeQueues, filters.

May import: `broker.entry`, `broker.state`, `raft`, `remoting`.
"""
