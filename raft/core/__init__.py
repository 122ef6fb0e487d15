"""The algorithm: elections, replication, reads, membership, as one state machine without IO.

Events and the time go in, a `Ready` comes out: what to persist, to send, to apply. Pure.

May import: `raft`.
"""
