"""Programs of simulated client machines: they send, pop, lock, reset, delete, read.

May import: `chaos.sim.groups.models`, `chaos.sim.machine`, `chaos.sim.seed`, `broker`, `client`,
  `namesrv`, `remoting`.
"""
