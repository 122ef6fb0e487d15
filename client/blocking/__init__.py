"""The same clients for scripts: blocking calls over a loop in a thread of its own.

May import: `client`, `client.administer`, `client.connection`, `client.consume`, `client.produce`,
  `remoting`.
"""
