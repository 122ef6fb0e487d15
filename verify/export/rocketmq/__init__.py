"""The verifier's reading of Apache RocketMQ's own stores: tables `log` and `cq` of a run of it.

`store_files` says which files a store has, `record_frames` and `dledger_frames` where records and
DLedger entries begin and what is wrong with bytes that are neither, `log_files` reads a replica's
files one after the other, `commitment` compares the replicas of a group and says what is committed,
`replica` puts rows together.

It shares no code with RocketMQ, and none with what reads our own stores but the room of messages.

May import: `verify.export.messages`.
"""
