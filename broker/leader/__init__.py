"""State that ends with leadership: proposals in flight, and leases in the leader's memory.

`proposer` gathers requests into batches and owns the leader's overlay: offsets of queues and
consumers, keys, topics and decisions that are proposed and not applied yet. `rebalance_lock` holds
the leases of queue owners, `busy` the popped messages about which something is under way.

Nothing here survives a loss of leadership, and no lease goes by a clock that can jump.

May import: `broker.entry`, `broker.state`, `raft`, `remoting`.
"""
