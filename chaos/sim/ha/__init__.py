"""A configured master and its slaves in one thread: the engines `async` and `sync` of real brokers.

Machines, network, disks and clocks are those of whole groups (`chaos.sim.groups`), and so are most
of the faults. What is judged differs, since nobody is elected and what is lost with a disk is lost:
`log_book` says what each disk must have kept, who had what was answered, and what an answer claims.

`cluster` runs one seed, `ha_machine` is a computer with one of its brokers, `nemesis` breaks them,
`programs` are the clients.

May import: `chaos.sim.groups`, `chaos.sim.groups.models`, `chaos.sim.groups.programs`,
  `chaos.sim.machine`, `chaos.sim.seed`, `broker`, `client`, `raft`, `remoting`.
"""
