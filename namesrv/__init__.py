"""The name server: where brokers register and clients learn which broker has a topic's queues.

Place in the data path: beside it; asked once in a while, and before the first message. The tables
(`route_table`, `kv_config`) are pure; `server` is the shell.

May import: `remoting`.
"""
