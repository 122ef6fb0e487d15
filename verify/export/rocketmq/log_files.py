"""A replica's log files as entries, in order, with a chain of hashes and what is damaged.

Place in the data path: `verify.export.rocketmq.commitment` reads every replica once for its chain,
`verify.export.rocketmq.replica` once more for its rows.

RocketMQ never clears what it cuts off, so that bytes behind the end of a log may be anything: left
over records among them. As its own recovery does, this takes the first bytes that are no further
record for the end. They are damage only where the log goes on behind them: in a later file, or in
the same file with a record that was written after those before it.

Index: that of DLedger + 1 (+ the position where its first file begins, where a plain CommitLog came
before); of a record in no DLedger entry, its position + 1. Both begin at 1 and rise along the log.
Term: DLedger's, else the epoch of the record's position, else 0. Chain: XXH3-64 of the chain before
and the bytes of the entry, begun anew at `chain_from`, where all replicas of a group have their
records; none before that, and none behind damage.

Invariants: nothing raises whatever the bytes are; a few megabytes are in memory at a time.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import xxhash

from verify.export.messages.entries import KIND_DATA, Damage, Entries
from verify.export.messages.record_fields import MAGIC_V1, MAGIC_V2
from verify.export.rocketmq.dledger_frames import HEADER_SIZE_BYTES, dledger_frame
from verify.export.rocketmq.record_frames import Blank, Frame, record_frame
from verify.export.rocketmq.store_files import LogFile, RocketmqStore

__all__ = ["NO_CHAIN", "FileRead", "LogReader"]

NO_CHAIN: Final = 0
_KIND_NOOP: Final = 0
_MAGIC_OFFSET: Final = 4
_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_ReadFrame = Callable[[memoryview, int, int], Frame | Blank | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """A file's entries, and its damages, each with its index among both."""

    entries: Entries
    damages: Sequence[tuple[int, Damage]]


class LogReader:
    """Reads one replica's files in the order of the log; each must be passed once."""

    def __init__(self, store: RocketmqStore, *, divide: int, chain_from: int) -> None:
        """`divide`: where DLedger's files follow plain ones in any store of the group, else 0."""
        self._divide = divide
        self._chain_from = chain_from
        self._epoch_starts = [epoch.position for epoch in store.epochs]
        self._epochs = [epoch.epoch for epoch in store.epochs]
        self._chain: int | None = None
        self._next_position: int | None = None
        self._before: Frame | None = None
        self.last_index = 0
        # The bytes at which the log seems to end, and why they are no entry.
        self.end: Damage | None = None

    def read(self, data: memoryview, file: LogFile) -> FileRead:
        """Read a file whose bytes are `data`."""
        found = _Found()
        frame_at: _ReadFrame = dledger_frame if file.dledger else record_frame
        offset = 0
        while True:
            frame = frame_at(data, offset, file.position + offset)
            if isinstance(frame, Blank):
                # By what it says: the file itself may have lost its zeros at the end.
                self._next_position = file.position + offset + frame.size
                break
            reason = self._break(frame)
            if reason is not None:
                self.end = self.end or self._damage(file, file.position + offset, reason)
                later = self._resume(data, offset, file, frame_at)
                if later is None:
                    break
                offset = later
                continue
            assert isinstance(frame, Frame)
            self._add(found, data, offset, file, frame)
            offset += frame.size
        return found.read()

    def _add(
        self, found: _Found, data: memoryview, offset: int, file: LogFile, frame: Frame
    ) -> None:
        position = file.position + offset
        if self.end is None and self._next_position not in {None, position}:
            reason = f"the log goes on at position {position} only"
            self.end = self._damage(file, self._next_position or 0, reason)
        if self.end is not None:
            found.damages.append((len(found.rows) + len(found.damages), self.end))
            self.end, self._chain = None, NO_CHAIN
        self._before = frame
        self._next_position = position + frame.size
        self.last_index = self._index(position, frame)
        found.rows.append(
            (
                len(found.rows) + len(found.damages),
                self.last_index,
                frame.term if file.dledger else self._epoch(position),
                KIND_DATA if frame.is_data else _KIND_NOOP,
                position,
                self._chained(data[offset : offset + frame.size], position),
                offset + frame.body,
                offset + frame.size,
            )
        )

    def _chained(self, content: memoryview, position: int) -> int:
        """Return the chain at an entry; NO_CHAIN where replicas can't be expected to agree."""
        if position < self._chain_from or self._chain == NO_CHAIN:
            return NO_CHAIN
        before = (self._chain or 0).to_bytes(8, "big", signed=True)
        chain = xxhash.xxh3_64_intdigest(before + content)
        self._chain = chain - (1 << 64) if chain >= 1 << 63 else chain
        return self._chain

    def _index(self, position: int, frame: Frame) -> int:
        return position + 1 if frame.index is None else self._divide + frame.index + 1

    def _epoch(self, position: int) -> int:
        place = bisect.bisect_right(self._epoch_starts, position)
        return self._epochs[place - 1] if place else 0

    def _break(self, frame: Frame | str) -> str | None:
        """Return why what was read does not go on with the log, as RocketMQ's recovery sees it."""
        if not isinstance(frame, Frame):
            return frame
        before = self._before
        if before is None or before.index is None or frame.index is None:
            return None
        if frame.index == before.index + 1 and frame.term >= before.term:
            return None
        return (
            f"index {frame.index} of term {frame.term} follows index {before.index} of term "
            f"{before.term}"
        )

    def _damage(self, file: LogFile, position: int, reason: str) -> Damage:
        index = max(self.last_index, self._divide) if file.dledger else position
        index += 1
        return Damage(index=index, position=position, reason=reason)

    def _resume(
        self, data: memoryview, offset: int, file: LogFile, frame_at: _ReadFrame
    ) -> int | None:
        """Return the offset of the next entry that was written after the last; None: none."""
        before = _MAGIC_OFFSET + (HEADER_SIZE_BYTES if file.dledger else 0)
        content = data.obj if isinstance(data.obj, bytes) else bytes(data)
        at = offset + 1
        while at < len(data):
            places = [content.find(magic, at + before) for magic in _MAGICS]
            place = min((place for place in places if place >= 0), default=None)
            if place is None:
                return None
            start = place - before
            frame = frame_at(data, start, file.position + start)
            if isinstance(frame, Frame) and self._is_later(frame):
                # What is missing between has no entry to follow.
                self._before = None
                return start
            at = start + 1
        return None

    def _is_later(self, frame: Frame) -> bool:
        before = self._before
        if before is None:
            return True
        if frame.index is None or before.index is None:
            return frame.rank >= before.rank
        return frame.index > before.index and frame.term >= before.term


class _Found:
    """What was read of one file, row by row."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.damages: list[tuple[int, Damage]] = []

    def read(self) -> FileRead:
        columns = np.array(self.rows, dtype=np.int64).reshape(-1, 8).T
        names = Entries.__dataclass_fields__
        entries = Entries(**dict(zip(names, columns, strict=True)))
        return FileRead(entries=entries, damages=self.damages)
