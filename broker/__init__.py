"""A broker: what RocketMQ clients talk to, on top of a replicated log.

`entry` is what stands in the log, `state` what every replica computes of it, `queues` what a
replica derives on disk, `leader` what ends with leadership, `request` what all handlers share, with
the three values `Replica`, `Leadership` and `Desk` that they take; then one room for each subject
with its handlers, and `process`, which is the running broker.

A handler checks, proposes and answers; it never changes replicated state itself. That changes only
when a committed entry is applied.

May import: nothing of ledgermq.
"""
