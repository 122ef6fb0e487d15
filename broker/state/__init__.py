"""State that every replica computes from the log: queues, groups, transactions, POP, users. Pure.

`state` applies one entry after the other; equal logs give equal states. `dedupe` knows which
UNIQ_KEY is stored, `half_table` and `resumed` follow transactions, `timer_table` what waits for its
time, `pop_state` and `pop_order` who holds which popped message until when (decision 13),
`queue_owners` whose an orderly queue is (decision 18), `offset_resets` which resets are pending,
`tombstone_offsets` and `topic_deletions` what deleted topics leave behind (decision 15),
`user_table` the users of 5.x (decision 20), `time_marks` when a part of the log was stored.
`state_image` is all of it as bytes in a snapshot. `group_clock` is the time that entries are
stamped with and deadlines are judged by; it takes readings as arguments and follows no single wall
clock (decision 21).

Nothing here reads a clock, talks to a client, or forgets a deletion.

May import: `broker.entry`, `remoting`.
"""
