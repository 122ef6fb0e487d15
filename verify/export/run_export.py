"""`ledgermq export RUN`: store the tables `log` and `cq`, made from a run's stores, in the run.

Place in the data path: after an experiment, or by hand; readers of the run then need no reader of
stores.

Invariants: the tables are complete and durable before run.json lists them, which is replaced at
once, by rename; what was listed before stays as it was. A damaged or incomplete run is not changed.

Source: docs/RUN_FORMAT.md, `tables`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from verify.export.tables import EXPORTED, ExportError, Written, export_tables
from verify.sources.durable import replace_durably, sync_with_folders
from verify.sources.manifest import Manifest, ManifestError, damage, load_manifest
from verify.sources.run_files import LocalFiles

__all__ = ["export_run"]


def export_run(run: Path) -> Mapping[str, int]:
    """Write the tables that run.json doesn't list yet; return their row counts.

    Raises:
        ExportError: nothing was added to run.json; the message says why.
    """
    try:
        files = LocalFiles(run)
        manifest = load_manifest(files)
        names = _missing(manifest)
        reason = damage(files, manifest)
        if reason is not None:
            raise ExportError(f"the run is damaged: {reason}")
        for name in names:
            if (run / name).is_symlink():
                raise ExportError(f"{name} is a link to somewhere else")
        written = export_tables(run, manifest, run, names)
        _list_tables(run, manifest, written)
    except ManifestError as error:
        raise ExportError(str(error)) from error
    except OSError as error:
        raise ExportError(f"the tables can't be written: {error}") from error
    return {name: sum(file.rows for file in files) for name, files in written.items()}


def _missing(manifest: Manifest) -> Sequence[str]:
    if "nodes" not in manifest.tables:
        raise ExportError("run.json lists no table nodes, so there are no stores to read")
    names = [name for name in EXPORTED if name not in manifest.tables]
    if not names:
        raise ExportError(f"run.json lists the tables {' and '.join(EXPORTED)} already")
    return names


def _list_tables(run: Path, manifest: Manifest, written: Mapping[str, Sequence[Written]]) -> None:
    listed = dict(manifest.raw)
    before = listed["tables"]
    assert isinstance(before, dict)
    listed["tables"] = before | {
        name: {"files": [_entry(run, file) for file in files]} for name, files in written.items()
    }
    # Durable before run.json names them; a crash in between leaves them unlisted.
    sync_with_folders((file.path for files in written.values() for file in files), below=run)
    replace_durably(run / "run.json", json.dumps(listed, indent=2) + "\n")


def _entry(run: Path, file: Written) -> dict[str, object]:
    with file.path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"name": file.path.relative_to(run).as_posix(), "rows": file.rows, "sha256": digest}
