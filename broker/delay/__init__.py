"""Delayed messages: levels, times of their own, where they wait, their delivery and their recall.

`waiting` says where a message waits and until when, `delivery` serves the eighteen levels, `timers`
the messages with a time of their own (their table is `broker.state.timer_table`, decision 14),
`records` makes what consumers get, `recall` and `recall_handle` take a waiting message back.
Deliveries and recalls are proposals of the leader.

The room never delivers before the time, and stores no progress outside of the log.

May import: `broker.entry`, `broker.request`, `raft`, `remoting`.
"""
