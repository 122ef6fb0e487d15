"""How a group comes to be: unborn stores that gossip until they agree who founds it. Pure.

`formation` decides whether a node with an empty store may take part in its group; `store_gossip`
holds what stores report to each other of themselves, and what follows from it (decision 7).

The room never trusts a member's name without the identity of its store.

May import: `raft`.
"""
