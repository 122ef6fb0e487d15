"""What judges a run: each engine runs the same stages and rules over the same tables.

`engine` says what an engine is: tables, stages, findings in one order. `duckdb` is embedded and
fast; it reads large tables where they lie, and no other file once they are loaded. The referee is
`verify.spark.engine`. `machine` tells how much memory the process can have, its control group
minded, and where it may leave what can be made again; `shapes` reads a file's columns as the format
names them.

Nothing here knows what a rule means.

May import: `verify.catalogue`, `verify.sources`.
"""
