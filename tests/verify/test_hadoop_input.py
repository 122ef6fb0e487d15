"""A stream of Java's as a file of Python's: its bytes, its bounds, and what Java says of failures.

Nothing here starts Spark.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError

from verify.spark.hadoop_input import CHUNK_BYTES, HadoopInput
from verify.spark.java_errors import as_os_errors, os_error


class JavaBytes:
    """What FSDataInputStream does over `content`."""

    def __init__(self, content: bytes) -> None:
        self._stream = io.BytesIO(content)
        self.counts: list[int] = []
        self.opened = 0
        self.closed = 0

    def open(self) -> JavaBytes:
        self.opened += 1
        return self

    def seek(self, position: int, /) -> None:
        self._stream.seek(position)

    def readNBytes(self, count: int, /) -> bytes:
        self.counts.append(count)
        return self._stream.read(count)

    def close(self) -> None:
        self.closed += 1


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": range(100_000)}), sink)
    return sink.getvalue()


def test_footer_is_read_and_little_else() -> None:
    content = parquet()
    java = JavaBytes(content)
    with HadoopInput(java.open, len(content)) as stream:
        metadata = pq.read_metadata(pa.PythonFile(stream, mode="r"))
    assert metadata.num_rows == 100_000
    assert metadata.schema.to_arrow_schema().names == ["x"]
    assert sum(java.counts) <= 64 * 1024 + 8 < len(content)
    assert (java.opened, java.closed) == (1, 1)


def test_positions_are_those_of_a_file() -> None:
    content = bytes(range(256)) * 20_000
    java = JavaBytes(content)
    twin = io.BytesIO(content)
    with HadoopInput(java.open, len(content)) as stream:
        for offset, whence in ((7, os.SEEK_SET), (100, os.SEEK_CUR), (-9, os.SEEK_END)):
            assert stream.seek(offset, whence) == twin.seek(offset, whence)
            assert stream.read(5) == twin.read(5)
            assert stream.tell() == twin.tell()
        assert stream.read() == twin.read()
        assert stream.read(1) == b""
        assert stream.seek(len(content) + 5) == len(content) + 5
        assert stream.read(1) == b""
        with pytest.raises(ValueError, match="no position -1"):
            stream.seek(-1)
        stream.seek(0)
        assert stream.readall() == content
    assert max(java.counts) <= CHUNK_BYTES


def test_a_file_without_a_byte_is_not_opened() -> None:
    """Hadoop tells a pipe of this machine as one; to open it would be to wait for its writer."""
    java = JavaBytes(b"")
    with HadoopInput(java.open, 0) as stream:
        assert stream.readall() == b""
    assert (java.opened, java.closed) == (0, 0)


@pytest.mark.parametrize("size_bytes", [3, 10])
def test_size_that_was_told_bounds_what_is_read(size_bytes: int) -> None:
    """A file may have become longer or shorter since."""
    java = JavaBytes(b"abcdef")
    with HadoopInput(java.open, size_bytes) as stream:
        assert stream.readall() == b"abcdef"[:size_bytes]


def failing(error: Exception) -> Callable[[], JavaBytes]:
    def opened() -> JavaBytes:
        raise error

    return opened


def test_failure_of_the_jvm_is_an_error_of_the_file() -> None:
    stream = HadoopInput(failing(Py4JError("An error occurred\n\tat java.lang.Thread")), 9)
    with pytest.raises(OSError, match="An error occurred") as raised:
        pq.read_metadata(pa.PythonFile(stream, mode="r"))
    assert raised.value.strerror == "An error occurred"


def test_an_interrupt_of_a_call_stays_one() -> None:
    error = Py4JError("Gateway must be connected to send cancel cmd.")
    error.__context__ = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), as_os_errors():
        raise error


@pytest.mark.parametrize(
    ("told", "number", "reason"),
    [
        (
            "java.io.FileNotFoundException: File file:/runs/x does not exist",
            errno.ENOENT,
            "No such file or directory",
        ),
        (
            "java.io.FileNotFoundException: /runs/x (No such file or directory)",
            errno.ENOENT,
            "No such file or directory",
        ),
        (
            "java.io.FileNotFoundException: /runs/x (Permission denied)",
            errno.EIO,
            "Permission denied",
        ),
        (
            'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "x"',
            errno.EIO,
            'No FileSystem for scheme "x"',
        ),
        (
            "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class a.B not found",
            errno.EIO,
            "ClassNotFoundException: Class a.B not found",
        ),
        ("java.net.UnknownHostException: nowhere", errno.EIO, "UnknownHostException: nowhere"),
        ("java.io.IOException: it broke\n\tat a.B.c", errno.EIO, "it broke"),
        ("java.lang.NullPointerException", errno.EIO, "NullPointerException"),
        ("", errno.EIO, "the JVM is gone"),
    ],
)
def test_java_is_told_in_one_line(told: str, number: int, reason: str) -> None:
    error = os_error(told)
    assert (error.errno, error.strerror) == (number, reason)
    assert isinstance(error, FileNotFoundError) == (number == errno.ENOENT)
