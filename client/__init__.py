"""The client: producers and consumers that speak RocketMQ's remoting protocol, on asyncio.

`client.produce.producer`, `client.produce.transaction_producer`, `client.consume.push_consumer`,
`client.consume.pull_consumer`, `client.consume.lite_pull_consumer`, `client.consume.pop_consumer`
and `client.administer.admin` are what applications use, `client.blocking.sync` is their blocking
face; `client.message` is what they send and get, `client.errors` tells what can go wrong.
`docs/CLIENT.md` shows all of them at work. Below them stands `client.connection.instance`:
connections, routes and heartbeats of one client.

Works with ledgermq's brokers and with Apache RocketMQ's. What differs from RocketMQ's Java client,
and why, stands in `docs/DIVERGENCE.md` and decision 17.

The client never calls a timeout a failure: it retries until an outcome is definite, or says that it
is unknown.

May import: `remoting`.
"""
