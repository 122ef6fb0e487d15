"""The client: producers and consumers that speak RocketMQ's remoting protocol, on asyncio.

`client.produce.producer`, `client.produce.transaction_producer`, `client.consume.push_consumer`,
`client.consume.pull_consumer`, `client.consume.pop_consumer` and `client.administer.admin` are what
applications use, `client.blocking.sync` is their blocking face; `client.errors` tells what can go
wrong. `docs/CLIENT.md` shows all of them at work. Below them stand `client.connection.instance`
(connections, routes, heartbeats of one client) and pure parts: `retry`, `answers`, `route_view`,
`leaders`, `rebalance`, `process_queue`, `queue_choice`, `namespace`, `pop_codec`, `trace_codec`.

Works with ledgermq's brokers and with Apache RocketMQ's. What differs from RocketMQ's Java client,
and why, stands in `docs/DIVERGENCE.md`.

May import: `remoting`.
"""
