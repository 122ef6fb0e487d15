"""Dumb models of the broker, fed with the committed log, and what clients were told beside them.

May import: `chaos.sim.machine`, `chaos.sim.seed`, `broker`, `client`, `raft`, `remoting`.
"""
