"""The files of one store, edited in place: what a disk, or a person, may do to them.

Place in the data path: `chaos.systems.ledgermq` hands them to the faults of stores
(`chaos.nemesis.store`), which edit them while the node's process is gone.

Invariants: nothing outside of the store is touched; the laboratory's own evidence (`trace`) and the
lock of the running process (`lock`) are no part of the store here, so no edit loses them.

Source: `chaos.systems.base.StoreFiles`; docs/FORMATS.md section 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["DirectoryFiles"]

NOT_OF_THE_STORE: Final = frozenset({"trace", "lock"})


class DirectoryFiles:
    """The files below one directory. Methods raise OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        if not self._directory.is_dir():
            return []
        return sorted(
            path.relative_to(self._directory).as_posix()
            for path in self._directory.rglob("*")
            if path.is_file() and path.relative_to(self._directory).parts[0] not in NOT_OF_THE_STORE
        )

    def size(self, name: str) -> int:
        return self._path(name).stat().st_size

    def read(self, name: str, offset: int, size: int) -> bytes:
        with self._path(name).open("rb") as stream:
            stream.seek(offset)
            return stream.read(size)

    def write(self, name: str, offset: int, data: bytes) -> None:
        with self._path(name).open("r+b") as stream:
            stream.seek(offset)
            stream.write(data)

    def truncate(self, name: str, size: int) -> None:
        with self._path(name).open("r+b") as stream:
            stream.truncate(size)

    def remove(self, name: str) -> None:
        self._path(name).unlink()

    def copy_all(self) -> dict[str, bytes]:
        return {name: self._path(name).read_bytes() for name in self.names()}

    def restore_all(self, files: Mapping[str, bytes]) -> None:
        for name in self.names():
            self._path(name).unlink()
        for name, data in files.items():
            path = self._path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream:
                stream.write(data.rstrip(b"\0"))
                stream.truncate(len(data))  # a hole, as the preallocation left it

    def _path(self, name: str) -> Path:
        """Return the file's path. Raises OSError for a name that leads out of the store."""
        parts = name.split("/")
        if not parts[0] or ".." in parts or parts[0] in NOT_OF_THE_STORE:
            raise OSError(f"{name!r} is no file of the store {self._directory}")
        return self._directory.joinpath(*parts)
