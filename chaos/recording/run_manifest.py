"""run.json: the last file of a run, written by rename once everything else is on disk.

Place in the data path: `chaos.experiment.experiment` collects the facts, this adds the lists of
files with their rows and digests. A run without it, or with `complete` false, did not end: the
verifier proves nothing about it.

Invariants: every listed file is hashed after its last write; names are relative to the run
directory with "/" between parts; the manifest appears whole or not at all.

Source: the run format, version 1.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FORMAT", "TableFile", "describe_environment", "list_node_files", "write_manifest"]

FORMAT = 1
NOT_LISTED = frozenset({"lock", "hard_state.tmp", "checkpoint.tmp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One listed file. `rows` is 0 for files of a store, which have none."""

    path: Path
    rows: int


def write_manifest(
    run: Path, facts: Mapping[str, object], tables: Mapping[str, list[TableFile]]
) -> Path:
    """Write run.json and return its path; `facts`: every key but format and tables.

    Everything that it lists is durable before.
    """
    manifest = {
        "format": FORMAT,
        **facts,
        "tables": {
            name: {"files": [_entry(run, file) for file in files]} for name, files in tables.items()
        },
    }
    listed = {file.path for files in tables.values() for file in files}
    parents = {folder for path in listed for folder in path.parents}
    folders = {folder for folder in parents if folder == run or run in folder.parents}
    for path in (*sorted(listed), *sorted(folders)):
        _sync(path)
    draft = run / "run.json.tmp"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.write("\n")
        # Durable before the rename: after a power failure run.json is whole or absent.
        file.flush()
        os.fsync(file.fileno())
    target = run / "run.json"
    draft.rename(target)
    _sync(run)
    return target


def list_node_files(run: Path) -> list[TableFile]:
    """List every file of the replicas' stores that says something about the run."""
    return [
        TableFile(path=path, rows=0)
        for path in sorted((run / "nodes").rglob("*"))
        if path.is_file() and path.name not in NOT_LISTED
    ]


def describe_environment() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count() or 0,
    }


def _entry(run: Path, file: TableFile) -> dict[str, object]:
    with file.path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"name": file.path.relative_to(run).as_posix(), "rows": file.rows, "sha256": digest}


def _sync(path: Path) -> None:
    """Make the bytes of a file durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
