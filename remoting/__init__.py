"""RocketMQ's remoting protocol: frames, headers, records, connections, and requests over them.

Brokers, name servers and clients stand on it, and it knows none of them. `errors` is what can go
wrong between two peers; everything else is in the rooms `protocol` (what is said), `records`
(messages as bytes) and `connections` (sockets).

May import: nothing of ledgermq.
"""
