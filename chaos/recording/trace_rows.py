"""Rows of the table `raft`, read from the replicas' traces while they grow.

Place in the data path: reads what `raft.store.trace` writes into a store's `trace/`, one file per
incarnation; `chaos.recording.table_converter` takes the rows.

Invariants: the rows of a replica come in the order in which it recorded them; an event that a kill
cut short is left out; times are nanoseconds since the run's start.

Source: the run format, version 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgpack

from chaos.recording.history import HistoryError

__all__ = ["TraceChangedError", "TraceFolder", "TraceRows"]

_READ_SIZE: Final = 1 << 20
_RECORD_SIZE_MAX: Final = 1 << 20
_HEAD_SIZE: Final = 256  # includes the first event's time, by which a file differs from any other


class TraceChangedError(Exception):
    """A file that was read is gone or was replaced: what was read of it is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFolder:
    """The directory of one replica's trace; it may not exist yet."""

    group: str
    node: str
    path: Path


class TraceRows:
    """The rows of one replica. `started_ns`: the run's start on CLOCK_MONOTONIC."""

    def __init__(self, folder: TraceFolder, *, started_ns: int) -> None:
        self._folder = folder
        self._started_ns = started_ns
        self._files: dict[str, _File] = {}

    def read(self) -> Iterator[dict[str, object]]:
        """Yield the events recorded since the last call.

        Raises:
            HistoryError: something in a file is no event.
            TraceChangedError: a file is not what it was.
        """
        paths = sorted(self._folder.path.glob("*"))
        missing = set(self._files) - {path.name for path in paths}
        if missing:
            raise TraceChangedError(f"{self._folder.path / min(missing)} has gone")
        for path in paths:
            file = self._files.setdefault(path.name, _File(path))
            for event in file.read():
                event["t"] = event["t"] - self._started_ns
                if event.get("t_begin") is not None:
                    event["t_begin"] = event["t_begin"] - self._started_ns
                yield {
                    "broker_group": self._folder.group,
                    "node": self._folder.node,
                    **event,
                }


class _File:
    """The file of one incarnation, and how far it was read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = path.stat().st_ino
        self._read_bytes = 0
        self._head = b""
        self._unpacker = msgpack.Unpacker(raw=False, max_buffer_size=_RECORD_SIZE_MAX + _READ_SIZE)

    def read(self) -> Iterator[dict[str, int]]:
        status = self._path.stat()
        with self._path.open("rb") as stream:
            if (
                status.st_ino != self._inode
                or status.st_size < self._read_bytes
                # A file system may give the next file the number of one that was deleted.
                or stream.read(len(self._head)) != self._head
            ):
                raise TraceChangedError(f"{self._path} is another file by now")
            stream.seek(self._read_bytes)
            while data := stream.read(_READ_SIZE):
                self._read_bytes += len(data)
                self._head += data[: _HEAD_SIZE - len(self._head)]
                self._unpacker.feed(data)
                for event in self._unpacker:
                    if not isinstance(event, dict):
                        place = self._unpacker.tell()
                        raise HistoryError(f"{self._path}: no event before byte {place}")
                    yield event
