"""How a group comes to be: unborn stores that gossip until they agree who founds it. Pure.

May import: `raft`.
"""
