"""Messages by key: the hash index over the log, who fills it, and the request that asks it.

May import: `broker.entry`, `broker.queues`, `broker.request`, `raft`, `remoting`.
"""
