"""Where a run lies and what it says of itself: its files, its manifest, the format's columns.

`run_files` reaches a run's files in a folder, or by a URI through Spark's JVM
(`verify.spark.hadoop_files`): digests, footers, what lies below a store, verdict.json put in its
place. `run_uri` says how a run is named, `manifest` what run.json lists and whether it is so,
`format_tables` which columns the format has.

`run_files` does not know what run.json lists, and opens nothing but plain files of the run.

May import: nothing of ledgermq.
"""
