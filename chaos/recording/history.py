"""The history of a run: an append-only file of msgpack records that survives a crash.

Place in the data path: every operation of `chaos.workload` is recorded here twice, at its invoke
and at its completion, with the host's monotonic clock; faults and notes go into the same file.
`chaos.recording.table_converter` makes the tables of the run format of it.

Record kinds, each one msgpack array:

    [0, id, t, {column: value}]           an operation was invoked
    [1, id, t, type, {column: value}]     it completed; its columns override those of the invoke
    [2, fault, {column: value}]           a fault as it is known now; the last record wins
    [3, name, value]                      a note about the run (phases, queues)

Invariants: a record is handed to the kernel by one write before `invoke` or `complete` returns, so
a killed harness loses nothing that was recorded; one that has no room on the disk is an error, once
more at the end, and leaves nothing of itself; a host that loses power may lose the tail, and a
reader drops a torn record. An operation without completion is `info`: its outcome is unknown.

Source: Jepsen's histories (invoke, ok, fail, info).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, TypeAlias

import msgpack

__all__ = [
    "COMPLETE",
    "FAULT",
    "INVOKE",
    "NOTE",
    "Column",
    "HistoryCounts",
    "HistoryError",
    "HistoryReader",
    "HistoryWriter",
    "MessageRow",
    "Outcome",
    "QueueRow",
]

INVOKE: Final = 0
COMPLETE: Final = 1
FAULT: Final = 2
NOTE: Final = 3
READ_SIZE: Final = 1 << 20
RECORD_SIZE_MAX: Final = 64 << 20

Outcome: TypeAlias = Literal["ok", "fail", "info"]
Column: TypeAlias = "str | int | bool | Sequence[MessageRow] | Sequence[QueueRow] | None"


class HistoryError(Exception):
    """The file is not a history; the text names the place and what was wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """One message in the run format's `messages`.

    `offset` is None where it is unknown, `digest` where it was not computed. `origin`: the topic of
    which a reader was shown it.
    """

    value: str
    uniq_key: str | None = None
    keys: tuple[str, ...] = ()
    broker_group: str | None = None
    topic: str | None = None
    queue: int | None = None
    offset: int | None = None
    digest: int | None = None
    shard: str | None = None
    seq: int | None = None
    tx: str | None = None
    reconsume: int | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One queue in the run format's `assigned`."""

    broker_group: str
    topic: str
    queue: int


@dataclass(slots=True)
class HistoryCounts:
    """Counts for live progress, updated as records are written."""

    invoked: int = 0
    ok: int = 0
    fail: int = 0
    info: int = 0
    messages_acked: int = 0
    transactions_decided: int = 0
    messages_read: int = 0


class HistoryWriter:
    """Appends to one file. Belongs to one event loop; holds no buffer of its own."""

    def __init__(self, path: Path, *, started_ns: int) -> None:
        """Create the file; `started_ns`: the run's start on CLOCK_MONOTONIC.

        Raises FileExistsError.
        """
        self._file = path.open("xb", buffering=0)
        self._packer = msgpack.Packer()
        self._started_ns = started_ns
        self._next_id = 0
        self._size = 0  # of all whole records
        self._open: dict[int, str] = {}
        self._lost: OSError | None = None
        self.counts = HistoryCounts()

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def now_ns(self) -> int:
        """Return nanoseconds since the run's start."""
        return time.monotonic_ns() - self._started_ns

    def invoke(self, f: str, **columns: Column) -> int:
        """Record that an operation begins; return its handle for `complete`.

        Call it before anything is sent, on the loop that sends: the time must not be later than the
        first byte.
        """
        handle = self._next_id
        self._next_id += 1
        self._open[handle] = f
        self.counts.invoked += 1
        now = self.now_ns()
        self._write([INVOKE, handle, now, {"f": f, **_plain(columns)}])
        return handle

    def complete(self, handle: int, outcome: Outcome, **columns: Column) -> None:
        """Record the outcome. `ok` only on the system's own word; in doubt `info`."""
        f = self._open.pop(handle)
        now = self.now_ns()
        self._write([COMPLETE, handle, now, outcome, _plain(columns)])
        self._count(f, outcome, columns)

    def record(
        self, f: str, outcome: Outcome, *, t_invoke: int, t_complete: int, **columns: Column
    ) -> None:
        """Record an operation timed by the caller: both times are CLOCK_MONOTONIC, in ns."""
        handle = self._next_id
        self._next_id += 1
        self.counts.invoked += 1
        began = t_invoke - self._started_ns
        ended = t_complete - self._started_ns
        self._write([INVOKE, handle, began, {"f": f, **_plain(columns)}])
        self._write([COMPLETE, handle, ended, outcome, {}])
        self._count(f, outcome, columns)

    def fault(self, fault: int, **columns: str | int | list[str] | None) -> None:
        self._write([FAULT, fault, columns])

    def note(self, name: str, value: object) -> None:
        """Record a note; `value` must be of plain msgpack types."""
        self._write([NOTE, name, value])

    def close(self) -> None:
        """Close the file. Raises the first OSError of a record: a client outlives its observer's
        errors, and a history that lacks a record proves nothing."""
        self._file.close()
        if self._lost is not None:
            raise self._lost

    def _count(self, f: str, outcome: Outcome, columns: Mapping[str, Column]) -> None:
        counts = self.counts
        if outcome == "fail":
            counts.fail += 1
            return
        if outcome == "info":
            counts.info += 1
            return
        counts.ok += 1
        messages = columns.get("messages")
        if f == "send":
            counts.messages_acked += 1
        elif f == "decide":
            counts.transactions_decided += 1
        elif f in {"poll", "deliver", "pop"} and isinstance(messages, (list, tuple)):
            counts.messages_read += len(messages)

    def _write(self, record: list[object]) -> None:
        data = self._packer.pack(record)
        assert len(data) <= RECORD_SIZE_MAX
        size = self._size + len(data)
        try:
            written = self._file.write(data)
            while written is not None and written < len(data):  # then a full disk raises OSError
                data = data[written:]
                written = self._file.write(data)
        except OSError as error:
            self._lost = self._lost or error
            # A record behind a torn one could not be told from its end.
            self._file.truncate(self._size)
            self._file.seek(self._size)
            raise
        self._size = size


class HistoryReader:
    """Iterates over the records of a file, which may not exist yet.

    A further iteration returns what was written since. `dropped_bytes`: the size of an incomplete
    last record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._unpacker = msgpack.Unpacker(
            raw=False, strict_map_key=True, max_buffer_size=RECORD_SIZE_MAX + READ_SIZE
        )

    @property
    def dropped_bytes(self) -> int:
        return self._read_bytes - int(self._unpacker.tell())

    def __iter__(self) -> Iterator[list[object]]:
        if self._read_bytes == 0 and not self._path.exists():
            return
        unpacker = self._unpacker
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            while data := file.read(READ_SIZE):
                self._read_bytes += len(data)
                unpacker.feed(data)
                try:
                    for record in unpacker:
                        yield _checked(record, self._path, unpacker.tell())
                except (ValueError, msgpack.UnpackException) as error:
                    raise HistoryError(
                        f"{self._path}: unreadable after byte {unpacker.tell()}: {error}"
                    ) from error


def _plain(columns: Mapping[str, Column]) -> dict[str, object]:
    """Return columns as msgpack values; messages and queues as arrays in field order."""
    plain: dict[str, object] = {}
    for name, value in columns.items():
        if isinstance(value, (list, tuple)):
            plain[name] = [_row(item) for item in value]
        else:
            plain[name] = value
    return plain


def _row(item: MessageRow | QueueRow) -> list[object]:
    if isinstance(item, QueueRow):
        return [item.broker_group, item.topic, item.queue]
    return [
        item.value,
        item.uniq_key,
        list(item.keys),
        item.broker_group,
        item.topic,
        item.queue,
        item.offset,
        item.digest,
        item.shard,
        item.seq,
        item.tx,
        item.reconsume,
        item.origin,
    ]


def _checked(record: object, path: Path, end: int) -> list[object]:
    shapes = {INVOKE: 4, COMPLETE: 5, FAULT: 3, NOTE: 3}
    if not isinstance(record, list) or not record or shapes.get(record[0]) != len(record):
        raise HistoryError(f"{path}: the record before byte {end} is none of a history")
    return record
