"""Many seeds over several processes, their record, and the shortest schedule of one that failed.

May import: `chaos.cluster`, `chaos.sim.cores`, `chaos.sim.groups`, `chaos.sim.machine`,
  `chaos.sim.seed`, `raft`.
"""
