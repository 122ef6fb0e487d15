"""The same clients for scripts: blocking calls over a loop in a thread of its own.

`sync` runs the loop, `sync_clients` wraps each asyncio client. There is no second implementation of
anything.

May import: `client`, `client.administer`, `client.connection`, `client.consume`, `client.produce`,
  `remoting`.
"""
