"""Cut the files of stores behind their last written byte.

Place in the data path: `chaos.recording.run_export` calls it once the brokers have stopped and
before the files are listed with their digests. ConsumeQueue and index files are created in their
full size, of which a short run fills little: a run of 34 MB on disk looked like 1.3 GB to whoever
hashed, copied or packed it.

Invariant: what is cut is a hole, so no written byte is lost; a reader that takes what is beyond a
file's end for zeros reads the same. Brokers extend the files again when they open them.

Source: lseek(2), SEEK_DATA and SEEK_HOLE.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["cut_trailing_holes", "end_of_data"]


def cut_trailing_holes(directory: Path) -> int:
    """Cut every file below `directory` to its data; return by how many bytes. Raises OSError.

    Caller's duty: nobody has the files open.
    """
    cut = 0
    for path in directory.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        size = path.stat().st_size
        end = end_of_data(path)
        if end < size:
            os.truncate(path, end)
            cut += size - end
    return cut


def end_of_data(path: Path) -> int:
    """Return the start of the last hole that reaches to the file's end; its size without one.

    A file system without holes reports all of it as data.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = 0
        while True:
            try:
                data = os.lseek(descriptor, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data from there on
                    return end
                raise
            end = os.lseek(descriptor, data, os.SEEK_HOLE)
    finally:
        os.close(descriptor)
