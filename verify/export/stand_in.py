"""Where a run has stores but no exported tables: the tables are made for one verification.

Place in the data path: between a manifest and whatever reads its tables (`verify.judge`,
`verify.sql`), which then find `log` and `cq` listed like any others.

Invariant: the run directory stays as it is; the files go with the block.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from verify.export.tables import EXPORTED, export_tables
from verify.manifest import ListedFile, Manifest

__all__ = ["with_exports"]


@contextmanager
def with_exports(
    run: Path, manifest: Manifest, *, beside: Path | None, say: Callable[[str], None]
) -> Iterator[Manifest]:
    """`manifest`, listing tables made from its stores where it lists none; their names are
    absolute.

    `beside`: the folder that a folder of our own is made in; None: where this machine keeps such.

    Raises:
        ExportError: the stores can't be read, or the tables not be written.
        OSError: no folder can be made.
    """
    names = [name for name in EXPORTED if name not in manifest.tables]
    if "nodes" not in manifest.tables or not names:
        yield manifest
        return
    say("reading the replicas' stores")
    with tempfile.TemporaryDirectory(prefix="ledgermq-export-", dir=beside) as folder:
        written = export_tables(run, manifest, Path(folder), names)
        made = {
            name: tuple(
                ListedFile(name=str(file.path.resolve()), rows=file.rows, sha256="")
                for file in files
            )
            for name, files in written.items()
        }
        yield dataclasses.replace(manifest, tables={**manifest.tables, **made})
