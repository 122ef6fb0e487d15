"""Worlds: what a cluster under test is made of; the protocol is in `chaos.worlds.base`.

`local` is processes on loopback with a proxy on every link, `links` says which proxy carries which
link, `link_probe` whether bytes pass there, `watch` who leads, asked of every node past the
proxies.

May import: `chaos.cluster`, `raft`, `remoting`, `toxiproxy`.
"""
