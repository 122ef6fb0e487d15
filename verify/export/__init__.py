"""The verifier's own reading of the replicas' stores: tables `log` and `cq`, written as Parquet.

`store_files` says which files a store has, `segment_entries`, `payloads`, `properties`, `digests`
and `queue_units` read them in bulk and tell what is damaged, `replica` puts rows together, `tables`
writes those of a whole run.

It shares no code with what wrote the stores, so that a bug can't hide in both, and opens no file
that run.json does not list.

May import: `verify.sources`.
"""
