"""The temporary tables of a run that has stores but no exported tables, for one verification.

Place in the data path: between a manifest and the readers of its tables (`verify.judge`,
`verify.sql`), which then find `log` and `cq` listed like any others.

Invariant: the run directory is not changed; the files are deleted at the end of the block.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from verify.export.tables import EXPORTED, ExportError, export_tables
from verify.sources.manifest import ListedFile, Manifest

__all__ = ["refuse_unexported", "with_exports"]


@contextmanager
def with_exports(
    run: Path, manifest: Manifest, *, beside: Path | None, report: Callable[[str], None]
) -> Iterator[Manifest]:
    """Yield `manifest`, listing tables made from its stores where it lists none, by absolute names.

    The tables are in a temporary folder inside `beside`; None: in this machine's default.

    Raises:
        ExportError: the stores can't be read, or the tables can't be written.
        OSError: no folder can be made.
    """
    names = _unexported(manifest)
    if not names:
        yield manifest
        return
    report("reading the replicas' stores")
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


def refuse_unexported(manifest: Manifest) -> None:
    """Reject a remote run that is not exported: stores are read on this machine only.

    Raises:
        ExportError: tables would have to be made from the run's stores.
    """
    names = _unexported(manifest)
    if names:
        raise ExportError(
            f"the run has stores and lists no table {' and no table '.join(names)}, which can only"
            " be made where the stores lie: export it first (`ledgermq export RUN`)"
        )


def _unexported(manifest: Manifest) -> list[str]:
    if "nodes" not in manifest.tables:
        return []
    return [name for name in EXPORTED if name not in manifest.tables]
