"""Worlds: what a cluster under test is made of; the protocol is in `chaos.worlds.base`.

May import: `chaos.cluster`, `raft`, `remoting`, `toxiproxy`.
"""
