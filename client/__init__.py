"""The client: producers and consumers that speak RocketMQ's remoting protocol, on asyncio.

`client.producer`, `client.transaction_producer`, `client.push_consumer`, `client.pull_consumer`
and `client.admin` are what applications use; `client.errors` tells what can go wrong. Below them
stand `client.instance` (connections, routes, heartbeats of one client) and pure parts: `retry`,
`answers`, `route_view`, `leaders`, `rebalance`, `process_queue`.

Works with ledgermq's brokers and with Apache RocketMQ's. What differs from RocketMQ's Java client,
and why, stands in `docs/DIVERGENCE.md`.
"""
