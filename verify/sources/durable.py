"""Files that have to be there after a power failure, and their names with them.

Place in the data path: below what writes into a run: verdict.json, the exported tables, run.json.

Invariants: a name is given to whole and durable bytes only; what a file lists is durable before it.

Source: Pillai et al., "All file systems are not created equal" (OSDI '14).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["replace_durably", "sync", "sync_with_folders"]


def sync(path: Path) -> None:
    """Make the bytes of a file durable, or the names in a folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_with_folders(files: Iterable[Path], *, below: Path) -> None:
    """Make the files durable, and every folder that leads to them from `below` on."""
    folders: dict[Path, None] = {}
    for path in files:
        sync(path)
        folders |= dict.fromkeys(
            folder for folder in path.parents if folder == below or below in folder.parents
        )
    for folder in folders:
        sync(folder)


def replace_durably(path: Path, text: str) -> None:
    """Replace the file at once by one with `text`; after a crash it is the old one or the new."""
    draft = path.with_name(path.name + ".tmp")
    draft.unlink(missing_ok=True)  # it may be a pipe, whose opening would block
    with draft.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)
    sync(path.parent)
