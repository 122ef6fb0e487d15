"""What a run leaves: its history, traces as tables, the manifest; the run format's writing side.

`history` is appended while the cluster is broken and survives a crash. `history_rows`, `trace_rows`
and `table_converter` turn history and traces into tables, `live_tables` in a process of its own
while the run goes on; `run_tables` has the format's columns; `run_export` and `run_manifest` write
the rest, run.json last.

May import: `chaos.cluster`.
"""
