"""Systems: what a cluster under test is made of; the protocol is in `chaos.systems.base`.

`ledgermq` is this project's brokers and name servers as processes of this host, with an older
release if there is one to be mixed in (`ledgermq_releases`), `stopping` their clean stop, `watch`
who leads, queried of every node past the links.

May import: `chaos.cluster`, `raft`, `remoting`.
"""
