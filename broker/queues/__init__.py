"""ConsumeQueues, which a replica derives from its log on disk, and filters of their readers.

`state_machine` applies a committed entry: it changes the state, appends units and wakes who waits.
`consume_queue`, `consume_queues` and `derived_files` own the units of committed records, and know
which of them are there, durable and sound. `queue_reader` reads the records behind a queue's units,
for pulls and pops alike, and checks of each record whether it is the one that the unit means.
`message_filter` and the `sql` modules decide which messages a subscription wants: tags, and SQL92
expressions compiled once.

The room never shows a unit that is not there, holds nothing that the log can't rebuild, and does
not decide who may read. Filters do not read the log.

May import: `broker.entry`, `broker.state`, `raft`, `remoting`.
"""
