"""Completes a run directory that an experiment has filled, so that the verifier may read it.

Place in the data path: the last step of `chaos.experiment.experiment`, after every process has
stopped and history and traces have become Parquet (`chaos.recording.live_tables`): files of stores
are cut to what was written of them and listed with their digests, run.json is written last.

Invariant: nothing in the run directory changes after run.json has appeared.

Source: the run format, version 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.cluster.layout import ClusterLayout
from chaos.recording.run_manifest import list_node_files, write_manifest
from chaos.recording.sparse_files import cut_trailing_holes
from chaos.recording.table_converter import ConvertedTables, RunSources
from chaos.recording.trace_rows import TraceFolder

__all__ = ["ExportResult", "export_run", "sources_of"]

_OWN_SYSTEM: Final = "ledgermq"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The number of rows of each table."""

    manifest: Path
    ops: int
    faults: int
    raft: int


def sources_of(run: Path, layout: ClusterLayout, *, started_ns: int) -> RunSources:
    """Return the sources of a run's tables, whose brokers lie in `run` as `layout` says."""
    return RunSources(
        run=run,
        traces=tuple(
            TraceFolder(
                group=place.group,
                node=place.node,
                path=layout.store_directory(run, place) / "trace",
            )
            for place in (*layout.brokers, *layout.spares)
        ),
        started_ns=started_ns,
    )


def export_run(run: Path, tables: ConvertedTables, facts: Mapping[str, object]) -> ExportResult:
    """Complete the run.

    `facts`: every key of the manifest but format and tables. Raises OSError: then there is no
    manifest.
    """
    # Before the listing, whose digests are those of the final bytes.
    cut_trailing_holes(run / "nodes")
    listed = {"ops": [tables.ops], "faults": [tables.faults]}
    stores = list_node_files(run)
    if stores:  # else the system's stores are nowhere in reach
        listed["nodes"] = stores
    # Of another system's brokers there is no trace, and an empty table would say that there was.
    if tables.raft.rows or (stores and facts["system"] == _OWN_SYSTEM):
        listed["raft"] = [tables.raft]
    manifest = write_manifest(run, facts, listed)
    return ExportResult(
        manifest=manifest,
        ops=tables.ops.rows,
        faults=tables.faults.rows,
        raft=tables.raft.rows,
    )
