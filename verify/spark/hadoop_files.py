"""The files of a run in any file system that Hadoop reaches, through the JVM of Spark's session.

Place in the data path: in place of `LocalFiles` if the run is named by a URI. The session's Hadoop
settings (core-site.xml in HADOOP_CONF_DIR, `spark.hadoop.*`) say how it is reached; Spark reads the
tables by their URIs.

Invariants: a digest is computed in the JVM, so that the bytes of a file never come to Python; those
of run.json and of the footers of Parquet files do. An empty file is not opened. If the file system
is this machine's disk (`file:///`, or a mount point that resolves to it), the rules for links and
pipes are those of `LocalFiles`. The file system is an instance of our own, closed with the block.

Source: `org.apache.hadoop.fs.FileSystem`, `FileContext.rename`.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from verify.sources.run_files import LocalFiles, RunFileError, TableFile
from verify.sources.run_uri import RunUri
from verify.spark.hadoop_input import CHUNK_BYTES, HadoopInput, JavaInput
from verify.spark.java_errors import JAVA_ERRORS, as_os_errors, java_class

__all__ = ["HadoopFiles", "UnreachedError", "hadoop_files"]

_SHA256_OF_NOTHING: Final = hashlib.sha256().hexdigest()
_PLAIN_DISK: Final = "org.apache.hadoop.fs.RawLocalFileSystem"
_NO_FILE_CONTEXT: Final = "org.apache.hadoop.fs.UnsupportedFileSystemException"


class _Output(Protocol):
    """The methods of FSDataOutputStream that are called here."""

    def write(self, content: bytes, /) -> None: ...

    def close(self) -> None: ...


class _Uri(Protocol):
    def getScheme(self) -> str: ...

    def getPath(self) -> str: ...


class _Path(Protocol):
    def getName(self) -> str: ...

    def toUri(self) -> _Uri: ...


class _Status(Protocol):
    def getPath(self) -> _Path: ...

    def getLen(self) -> int: ...

    def isFile(self) -> bool: ...

    def isDirectory(self) -> bool: ...


class _FileSystem(Protocol):
    """The methods of FileSystem that are called here."""

    def getFileStatus(self, path: _Path, /) -> _Status: ...

    def listStatus(self, path: _Path, /) -> Iterable[_Status]: ...

    def resolvePath(self, path: _Path, /) -> _Path: ...

    def open(self, path: _Path, /) -> JavaInput: ...

    def create(self, path: _Path, overwrite: bool, /) -> _Output: ...

    def rename(self, source: _Path, target: _Path, /) -> bool: ...

    def delete(self, path: _Path, recursive: bool, /) -> bool: ...

    def close(self) -> None: ...


class UnreachedError(Exception):
    """The URI leads to no run directory; the message says what was found."""


@contextmanager
def hadoop_files(session: SparkSession, uri: RunUri) -> Iterator[HadoopFiles]:
    """Yield the files of the run at `uri`, which must be a folder.

    Raises:
        UnreachedError: the file system can't be reached, or has no such folder.
    """
    try:
        files = HadoopFiles(session, uri)
    except OSError as error:
        raise UnreachedError(error.strerror) from error
    try:
        files.refuse_no_folder()
        yield files
    finally:
        with suppress(OSError):  # the call under which a JVM died has reported that already
            files.close()


class HadoopFiles:
    """The files of one run, of which `uri` is the folder; see `RunFiles`."""

    def __init__(self, session: SparkSession, uri: RunUri) -> None:
        context = session.sparkContext
        assert context._jvm is not None
        assert context._gateway is not None
        self._uri = uri
        self._java = context._jvm
        self._gateway = context._gateway
        self._footers: dict[str, pq.FileMetaData] = {}
        with as_os_errors():
            self._settings = self._java.org.apache.hadoop.conf.Configuration(
                context._jsc.hadoopConfiguration()
            )
            # By default Hadoop keeps a checksum beside each file of a disk, which becomes wrong
            # when a program without Hadoop writes the file.
            self._settings.set("fs.file.impl", _PLAIN_DISK)
            root = self._path("")
            self._system: _FileSystem = self._java.org.apache.hadoop.fs.FileSystem.newInstance(
                root.toUri(), self._settings
            )
        self._disk = self._disk_below(root)

    def close(self) -> None:
        with as_os_errors():
            self._system.close()

    def refuse_no_folder(self) -> None:
        """Raise UnreachedError if the run is not a folder."""
        try:
            is_there = self.is_folder("")
        except OSError as error:
            raise UnreachedError(error.strerror) from error
        if not is_there:
            raise UnreachedError(f"{self._uri} is no run directory")

    def is_folder(self, name: str) -> bool:
        try:
            with as_os_errors():
                return self._system.getFileStatus(self._path(name)).isDirectory()
        except FileNotFoundError:
            return False

    def text(self, name: str, *, size_bytes_max: int) -> str:
        with as_os_errors():
            status = self._system.getFileStatus(self._path(name))
            size_bytes = status.getLen()
            is_plain = status.isFile()
        if not is_plain or (self._disk is not None and not self._disk.is_plain(name)):
            raise RunFileError("is no plain file")
        if size_bytes > size_bytes_max:
            raise RunFileError(f"is larger than {size_bytes_max} bytes")
        with self._input(name, size_bytes) as stream:
            return stream.readall().decode("utf-8")

    def sha256(self, name: str) -> str:
        if self._size_of(name) == 0:
            return _SHA256_OF_NOTHING
        with as_os_errors():
            stream = self._system.open(self._path(name))
            try:
                digests = self._java.org.apache.commons.codec.digest.DigestUtils
                return str(digests.sha256Hex(stream))
            finally:
                stream.close()

    def footer(self, name: str) -> pq.FileMetaData:
        """Return the metadata of a Parquet file; cached, since it is read several times."""
        if name not in self._footers:
            with self._input(name, self._size_of(name)) as stream:
                self._footers[name] = pq.read_metadata(pa.PythonFile(stream, mode="r"))
        return self._footers[name]

    def below(self, folder: str) -> Iterable[str]:
        folders = [folder]
        while folders:
            inside = folders.pop()
            for name, is_file, is_folder in self._listed(inside):
                if is_file:
                    yield name
                elif is_folder and not (self._disk and self._disk.is_link(name)):
                    folders.append(name)

    def table_file(self, name: str) -> TableFile:
        return TableFile(
            name=name.rpartition("/")[2],
            uri=self._uri.of(name),
            path=None,
            footer=partial(self.footer, name),
        )

    def replace(self, name: str, text: str) -> None:
        content = text.encode()
        temporary, target = self._path(f"{name}.tmp"), self._path(name)
        with as_os_errors():
            output = self._system.create(temporary, True)
            try:
                for begin in range(0, len(content), CHUNK_BYTES):
                    output.write(content[begin : begin + CHUNK_BYTES])
            finally:
                output.close()
            self._rename(temporary, target)

    def _path(self, name: str) -> _Path:
        # Made from text, since Path(parent, child) takes a name with a colon for a URI.
        path: _Path = self._java.org.apache.hadoop.fs.Path(self._uri.of(name))
        return path

    def _disk_below(self, root: _Path) -> LocalFiles | None:
        """Return the run's folder if it is on this machine; None if it is elsewhere, or missing."""
        try:
            with as_os_errors():
                resolved = self._system.resolvePath(root).toUri()
                scheme, path = resolved.getScheme(), resolved.getPath()
        except FileNotFoundError:
            return None
        return LocalFiles(Path(path)) if scheme == "file" else None

    def _size_of(self, name: str) -> int:
        """Return the size in bytes of a file; raise RunFileError if it must not be opened."""
        if self._disk is not None:
            self._disk.refuse(name)
        with as_os_errors():
            status = self._system.getFileStatus(self._path(name))
            size_bytes, is_plain = status.getLen(), status.isFile()
        if not is_plain:
            raise RunFileError("can't be read: it is no plain file")
        return size_bytes

    def _input(self, name: str, size_bytes: int) -> HadoopInput:
        return HadoopInput(lambda: self._system.open(self._path(name)), size_bytes)

    def _listed(self, folder: str) -> list[tuple[str, bool, bool]]:
        """List `folder`: each name, whether it is a file, whether it is a folder."""
        try:
            with as_os_errors():
                return [
                    (
                        f"{folder}/{status.getPath().getName()}",
                        status.isFile(),
                        status.isDirectory(),
                    )
                    for status in self._system.listStatus(self._path(folder))
                ]
        except FileNotFoundError:
            return []

    def _rename(self, source: _Path, target: _Path) -> None:
        """Replace `target` by `source`; raises Java's errors, or OSError.

        Only FileContext can replace a file. A file system without one is an object store, in which
        the file is missing for a moment, but is never seen half written.
        """
        hadoop = self._java.org.apache.hadoop.fs
        kinds = self._gateway.new_array(hadoop.Options.Rename, 1)
        kinds[0] = hadoop.Options.Rename.OVERWRITE
        try:
            context = hadoop.FileContext.getFileContext(target.toUri(), self._settings)
        except JAVA_ERRORS as error:
            if java_class(error) != _NO_FILE_CONTEXT:
                raise
            self._system.delete(target, False)
            if not self._system.rename(source, target):
                raise OSError(errno.EIO, "it can't be renamed to its name") from error
            return
        context.rename(source, target, kinds)
