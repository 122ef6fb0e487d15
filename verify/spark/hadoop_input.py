"""A file of a Hadoop file system as a Python stream with a position.

Place in the data path: between Java's input stream and readers of a few bytes: pyarrow, which reads
the footer of a Parquet file, and `verify.spark.hadoop_files`, which reads run.json. Spark reads the
whole tables by itself.

Invariants: nothing is opened before the first byte is needed, so that an empty file never blocks
(Hadoop reports a pipe of this machine as one); a call into the JVM returns a MiB at most, since its
answer is text.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from verify.spark.java_errors import as_os_errors

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["CHUNK_BYTES", "HadoopInput", "JavaInput"]

CHUNK_BYTES: Final = 1024 * 1024


class JavaInput(Protocol):
    """The methods of FSDataInputStream that are called here."""

    def seek(self, position: int, /) -> None: ...

    def readNBytes(self, count: int, /) -> bytes:
        """Read `count` bytes, or fewer at the end of the file."""

    def close(self) -> None: ...


class HadoopInput(io.RawIOBase):
    """A file of `size_bytes`; `opened` opens it. Methods raise OSError."""

    def __init__(self, opened: Callable[[], JavaInput], size_bytes: int) -> None:
        super().__init__()
        self._opened = opened
        self._size_bytes = size_bytes
        self._position = 0
        self._stream: JavaInput | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        if base + offset < 0:
            raise ValueError(f"there is no position {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer` as far as the file goes, and return the number of bytes."""
        wanted = memoryview(buffer).cast("B")
        done = 0
        while (count := min(CHUNK_BYTES, len(wanted) - done, self._left())) > 0:
            got = self._read(count)
            wanted[done : done + len(got)] = got
            done += len(got)
            self._position += len(got)
            if len(got) < count:  # the file has become shorter than `size_bytes`
                break
        return done

    def readall(self) -> bytes:
        """Read the rest of the file. Python's default would read 8 KiB at a time."""
        return b"".join(iter(lambda: self.read(CHUNK_BYTES) or b"", b""))

    def close(self) -> None:
        stream, self._stream = self._stream, None
        try:
            if stream is not None:
                with as_os_errors():
                    stream.close()
        finally:
            super().close()

    def _left(self) -> int:
        return self._size_bytes - self._position

    def _read(self, count: int) -> bytes:
        with as_os_errors():
            if self._stream is None:
                self._stream = self._opened()
            self._stream.seek(self._position)
            got = self._stream.readNBytes(count)
        assert len(got) <= count
        return got
