"""The name server: where brokers register and clients learn which broker has a topic's queues.

Place in the data path: beside it; queried once in a while, and before the first message. The tables
(`route_table`, `kv_config`) are pure and take the time as an argument; `registration` checks what
brokers register; `settings` is what administrators change while it runs; `kv_file` keeps key-value
configuration over restarts; `held_lookups` lets a lookup wait a moment for a new leader; `server`
is the shell.

A name server never talks to other name servers, and never lets an older term take a leader's place.

May import: `remoting`.
"""
