"""The verifier's own reading of the replicas' stores: tables `log` and `cq`, written as Parquet.

`store_files` says which files a store of ours has, `segment_entries` and `payloads` read them in
bulk and tell what is damaged, `replica` makes rows of them. Of the engines `async` and `sync`
`master_slave_entries` reads the files, `master_slave_commitment` says what of each replica is what
the master has, `master_slave_replica` makes the rows. The room `rocketmq` does the same for stores
of Apache RocketMQ. `tables` writes those of a whole run.

It shares no code with what wrote the stores, so that a bug can't hide in both, and opens no file
that run.json does not list.

May import: `verify.export.messages`, `verify.export.rocketmq`, `verify.sources`.
"""
