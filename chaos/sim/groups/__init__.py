"""Whole groups in one thread: the product's own brokers, name servers and clients on virtual time.

Every process runs on a `chaos.sim.machine.virtual_loop` of its own, talks through
`chaos.sim.machine.tcp`, stores its log on a `chaos.sim.machine.disk`, and sees the clock and the
randomness of `chaos.sim.machine.virtual_stdlib`. So server, transport, wire, state machine,
handlers, transactions, delayed messages, routes and clients are all the real ones; only machines,
wires and disks are played.

`cluster` runs one seed, `machine` is a computer that programs run on and die on, `broker_machine`
one that runs a broker, `nemesis` breaks them, `operator` repairs what a person would repair,
`programs` are the clients, `models` judge; `replicas` and `derived` compare what each replica has
at the end.

May import: `chaos.sim.cores`, `chaos.sim.groups.models`, `chaos.sim.groups.programs`,
  `chaos.sim.machine`, `chaos.sim.seed`, `broker`, `namesrv`, `raft`, `remoting`.
"""
