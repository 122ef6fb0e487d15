"""Master-slave replication, as RocketMQ has it beside DLedger: the engines `async` and `sync`.

`commit_log` is a log in RocketMQ's own framing (`framing`) over files of one size (`log_files`); it
knows what of it is durable.

`engine` implements `raft.replicated_log` on it: the master proposes, applies, and answers by its
mode, which `acknowledgements` keeps; `flusher` carries fsyncs out beside the loop, `state_keeper`
writes snapshots of the state and says which one a start restores; `trace_events` tells a verifier
what it did; `store` opens all of it.

Nobody is elected, and no entry waits for a majority: what a master appends is applied at once, and
what it had not replicated is lost with its disk. That is these engines' nature.

May import: `broker.entry`, `raft`, `raft.log`, `raft.snapshots`, `raft.store`, `remoting`.
"""
