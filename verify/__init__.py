"""The verifier: reads a run directory and answers pass, fail or unknown.

Rules are files of SQL; DuckDB and Spark judge by the same text and must agree. It imports none of
the packages that it judges, so that no bug can hide in shared code.

May import: `verify.catalogue`, `verify.engines`, `verify.export`, `verify.sources`, `verify.spark`.
"""
