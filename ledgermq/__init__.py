"""The command line: wires the packages' commands together and holds no logic of its own.

May import: `broker`, `chaos`, `client`, `namesrv`, `raft`, `remoting`, `toxiproxy`, `verify`.
"""
