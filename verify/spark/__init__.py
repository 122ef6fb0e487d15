"""Spark, the referee: its engine, Java, home and session, a standalone cluster, Hadoop's files.

`session` (with `early_session`, `shared_session`, `home`, `submit` and `java`) starts Spark, and
keeps what an installation can use again below the user's cache (docs/SPARK.md). `engine` and
`tables` judge with it. `cluster` is a master and workers on loopback, for `--master`.
`hadoop_files`, `hadoop_input` and `java_errors` reach a run's files through the JVM.

Session and cluster know no rule and judge nothing; the cache holds nothing that can't be made
again; the cluster listens on loopback only.

May import: `verify.catalogue`, `verify.engines`, `verify.sources`.
"""
