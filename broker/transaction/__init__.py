"""Transactional messages: their decisions, and the check-back of halves that wait for one.

`end_transaction` takes the producer's decision, `check_back` queries producers of undecided halves
in the order of `check_schedule`, `half_admin` answers operators; `records` makes what a
transaction's life writes: final message, op record, discarded half. Which half is undecided is
replicated state (`broker.state.half_table`, decision 3).

The room never writes a final message and its decision in two entries.

May import: `broker.delay`, `broker.entry`, `broker.leader`, `broker.request`, `broker.state`,
  `raft`, `remoting`.
"""
