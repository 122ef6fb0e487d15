"""The simulator as a world of experiments: the scenario, workload, faults and history are those of
every other world, brokers and name servers run on virtual time.

`simulated_host` has the loop and the clock, `simulated_system` the machines, `simulated_disks`
disks that fail, `simulated_replacements` brings nodes back whose disk was lost, `settable_clock`
has clocks that are wrong, `simulated_links` the network.

May import: `chaos.cluster`, `chaos.links`, `chaos.sim.groups`, `chaos.sim.groups.programs`,
  `chaos.sim.machine`, `chaos.systems`, `chaos.worlds`, `broker`, `raft`, `remoting`.
"""
