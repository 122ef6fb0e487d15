"""Programs of simulated client machines: they send, pop, lock, reset, delete, read.

They use the product's own client and record requests and answers; `programs` says which of
them a seed runs. None of them judges.

May import: `chaos.sim.groups.models`, `chaos.sim.machine`, `chaos.sim.seed`, `broker`, `client`,
  `namesrv`, `remoting`.
"""
