"""The files of a run, wherever they are: the seam between the verification and a file system.

Place in the data path: below `verify.sources.manifest`, which compares the files with what run.json
lists, and below `verify.judge`, which passes the files of its tables to an engine. `LocalFiles` is
a folder of this machine; `verify.spark.hadoop_files` is one that Hadoop reaches by a URI.

Invariants: a file outside the run, or one that is not a plain file, is never opened: nothing here
waits for a pipe. verdict.json is replaced at once, so that a reader never sees half of it, nor, on
this machine, does a power failure leave half of it.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow.parquet as pq

from verify.sources.durable import replace_durably

__all__ = ["LocalFiles", "RunFileError", "RunFiles", "TableFile"]

_DIGEST_CHUNK_BYTES: Final = 1024 * 1024


class RunFileError(Exception):
    """A file of the run is refused; the message is to be appended to the file's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """One Parquet file of a table: Spark reads it by `uri`, DuckDB by `path`.

    `footer` raises pa.ArrowException and OSError.
    """

    name: str
    uri: str
    path: Path | None  # None if it is not on this machine
    footer: Callable[[], pq.FileMetaData]


class RunFiles(Protocol):
    """The files of one run; names are relative to it, with "/". Methods raise OSError, whose
    `strerror` says why."""

    def is_folder(self, name: str) -> bool:
        """Return whether `name` exists and is a folder."""

    def text(self, name: str, *, size_bytes_max: int) -> str:
        """Return the whole of a UTF-8 file.

        Raises:
            RunFileError: it is not a plain file, or larger than `size_bytes_max`.
            FileNotFoundError: it does not exist.
            UnicodeDecodeError: it is not UTF-8.
        """

    def sha256(self, name: str) -> str:
        """Return the digest of a file in lower-case hex.

        Raises:
            RunFileError: it is not a plain file, or lies outside the run.
        """

    def footer(self, name: str) -> pq.FileMetaData:
        """Return the metadata of a Parquet file.

        Raises:
            pa.ArrowException: it is not a Parquet file.
        """

    def below(self, folder: str) -> Iterable[str]:
        """Return the names of all plain files below `folder`; none if the folder does not exist."""

    def table_file(self, name: str) -> TableFile:
        """Return the file `name` of a table, as engines read it."""

    def replace(self, name: str, text: str) -> None:
        """Replace the file `name` by one with `text`, at once."""


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A run directory of this machine."""

    run: Path

    def is_folder(self, name: str) -> bool:
        return (self.run / name).is_dir()

    def text(self, name: str, *, size_bytes_max: int) -> str:
        path = self.run / name
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise RunFileError("is no plain file")
        if status.st_size > size_bytes_max:
            raise RunFileError(f"is larger than {size_bytes_max} bytes")
        return path.read_text(encoding="utf-8")

    def sha256(self, name: str) -> str:
        self.refuse(name)
        with (self.run / name).open("rb") as stream:
            digest = hashlib.sha256()
            while chunk := stream.read(_DIGEST_CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()

    def is_plain(self, name: str) -> bool:
        return stat.S_ISREG((self.run / name).stat().st_mode)

    def is_link(self, name: str) -> bool:
        return (self.run / name).is_symlink()

    def refuse(self, name: str) -> None:
        """Raise RunFileError for a file that must not be opened."""
        path = self.run / name
        try:
            if not path.resolve().is_relative_to(self.run.resolve()):
                raise RunFileError("lies outside the run directory")
        except RuntimeError:  # Path.resolve's error for a circle of links
            raise RunFileError("can't be read: its links lead in a circle") from None
        if not self.is_plain(name):
            raise RunFileError("can't be read: it is no plain file")

    def footer(self, name: str) -> pq.FileMetaData:
        return pq.read_metadata(self.run / name)

    def below(self, folder: str) -> Iterable[str]:
        for path in (self.run / folder).rglob("*"):
            if path.is_file():
                yield path.relative_to(self.run).as_posix()

    def table_file(self, name: str) -> TableFile:
        path = self.run / name
        return TableFile(
            name=path.name,
            # Without a scheme, Spark would look the path up in Hadoop's default file system.
            uri=f"file:{path.absolute()}",
            path=path,
            footer=lambda: pq.read_metadata(path),
        )

    def replace(self, name: str, text: str) -> None:
        replace_durably(self.run / name, text)
