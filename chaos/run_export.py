"""Turns a run directory that an experiment has filled into one that the verifier may read.

Place in the data path: the last step of `chaos.experiment`, after every process has stopped:
history and traces become Parquet, files of stores are cut to what was written of them and listed
with their digests, run.json is written last.

Invariant: nothing in the run directory changes after run.json has appeared.

Source: the run format, version 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.cluster_layout import ClusterLayout
from chaos.run_manifest import TableFile, list_node_files, write_manifest
from chaos.run_tables import read_history, write_faults, write_ops, write_raft
from chaos.sparse_files import cut_trailing_holes

__all__ = ["HISTORY_FILE", "ExportResult", "export_run"]

HISTORY_FILE = "history.msgpack"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """Rows by table."""

    manifest: Path
    ops: int
    faults: int
    raft: int


def export_run(
    run: Path, layout: ClusterLayout, facts: Mapping[str, object], *, started_ns: int
) -> ExportResult:
    """`facts`: every key of the manifest but format and tables; `started_ns`: the run's start on
    CLOCK_MONOTONIC. Raises HistoryError, OSError or pyarrow's errors: then there is no manifest.
    """
    tables = read_history(run / HISTORY_FILE)
    ops = TableFile(
        path=run / "history" / "ops.parquet",
        rows=write_ops(tables.ops, run / "history" / "ops.parquet"),
    )
    faults = TableFile(
        path=run / "faults" / "faults.parquet",
        rows=write_faults(tables.faults, run / "faults" / "faults.parquet"),
    )
    traces = [
        (place.group, place.node, layout.store_directory(run, place) / "trace")
        for place in layout.brokers
    ]
    raft = TableFile(
        path=run / "raft" / "raft.parquet",
        rows=write_raft(traces, run / "raft" / "raft.parquet", started_ns=started_ns),
    )
    cut_trailing_holes(run / "nodes")
    listed = {"ops": [ops], "faults": [faults], "raft": [raft], "nodes": list_node_files(run)}
    manifest = write_manifest(run, facts, listed)
    return ExportResult(manifest=manifest, ops=ops.rows, faults=faults.rows, raft=raft.rows)
