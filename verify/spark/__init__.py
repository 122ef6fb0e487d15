"""Spark, the referee: its engine, Java, home and session, a standalone cluster, Hadoop's files.

May import: `verify.catalogue`, `verify.engines`, `verify.sources`.
"""
