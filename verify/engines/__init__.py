"""What judges a run: each engine runs the same stages and rules over the same tables.

`engine` says what an engine is; `duckdb` is embedded and fast, `spark` the referee. May import
the files of rules, the dialect, the format's tables and where a run's files lie; nothing of a
check's meaning is in here.

May import: `verify.catalogue`, `verify.sources`.
"""
