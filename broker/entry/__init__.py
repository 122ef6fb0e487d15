"""Contents of the log: payloads, records, commands, and the values they are made of. Pure.

`payload` is the table and the records of one data entry, `record` the leader's fast encoder of a
record (its reader is `remoting.records.message`), `record_copy` a message that is stored again
under another topic. `topics`, `topic_attributes`, `policies`,
`levels`, `pop_commands` and `pop_handle` are values that entries and requests speak of.
`state_part` is what a part of the replicated state has to offer to store rows of its own in a
snapshot; `applied_entries` holds the newest applied entries in decoded form.

Nothing here reads a clock or talks to a client.

May import: `raft`, `remoting`.
"""
