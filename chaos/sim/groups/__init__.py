"""Whole groups in one thread: the product's own brokers, name servers and clients on virtual time.

Every process runs on a `chaos.sim.machine.virtual_loop` of its own, talks through
`chaos.sim.machine.tcp`, keeps its log on a `chaos.sim.machine.disk`, and sees the clock and the
randomness of `chaos.sim.machine.virtual_stdlib`. So server, transport, wire, state machine,
processors, transactions, delayed messages, routes and clients are all the real ones; only machines,
wires and disks are played.

Way through the package: `cluster` runs one seed, `options` draws what it is made of, `machine` is
a computer that programs run on and die on, `broker_machine` one that runs a broker, `nemesis`
breaks them, `clients` send, decide and read. `trace_rules` judges R1 to R12 from the nodes' Raft
traces as they are written, `committed_log` G2 to G5 from what is applied, `promises` G1, G6 and G7
from what clients were told.

May import: `chaos.sim.cores`, `chaos.sim.groups.models`, `chaos.sim.groups.programs`,
  `chaos.sim.machine`, `chaos.sim.seed`, `broker`, `namesrv`, `raft`, `remoting`.
"""
