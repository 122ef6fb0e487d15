"""A file's bytes, mapped and not read at once.

Place in the data path: under the readers of each system's log files.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["mapped_file"]


@contextmanager
def mapped_file(path: Path) -> Iterator[memoryview]:
    """Map the file's bytes without reading them at once; no bytes if the file is empty."""
    with path.open("rb") as stream:
        if stream.seek(0, 2) == 0:
            yield memoryview(b"")
            return
        # Not closed here: arrays may still refer to the map, which is freed with the last one.
        yield memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
