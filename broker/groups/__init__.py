"""Producer and consumer groups: members (by their heartbeats), locks on queues, settings.

`clients` serves heartbeats and member lists, `groups` the configuration of subscription groups,
`locks` an orderly consumer's claims on its queues. Owners of queues are replicated
(`broker.state.queue_owners`), their leases are in `broker.leader.rebalance_lock` (decision 18).

May import: `broker.entry`, `broker.queues`, `broker.request`, `broker.send`,
  `broker.state`, `raft`, `remoting`.
"""
