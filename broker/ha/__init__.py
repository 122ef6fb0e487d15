"""Master-slave replication, as RocketMQ has it beside DLedger: the engines `async` and `sync`.

`commit_log` owns the files of a log in RocketMQ's own framing (`framing`) and knows what of it is
durable.

Nobody is elected, and no entry waits for a majority: what a master appends is applied at once, and
what it had not replicated is lost with its disk. That is these engines' nature.

May import: `broker.entry`, `raft`, `raft.log`, `remoting`.
"""
