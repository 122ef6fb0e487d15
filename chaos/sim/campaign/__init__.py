"""Many seeds over several processes, their record, and the shortest schedule of one that failed.

`campaign` runs them and `command` prints, `record` remembers which seeds have passed by which
sources, `shrink` takes faults away while the same rule still breaks, `rotten_group` damages every
page of a store in turn.

May import: `chaos.cluster`, `chaos.sim.cores`, `chaos.sim.groups`, `chaos.sim.ha`,
  `chaos.sim.machine`, `chaos.sim.seed`, `raft`.
"""
