"""Consensus: a replicated log of opaque entries, after Ongaro and Ousterhout's Raft.

The package knows nothing of topics, queues or messages. Its centre is `raft.core`, a pure state
machine; `raft.node` is the one asyncio shell around it. What a broker may use is the seam in
`raft.replicated_log`; everything else is the engine behind it.
"""
