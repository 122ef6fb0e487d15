"""Buffer of the newest applied entries, with their decoded payloads.

Place in the data path: beside it. The state machine adds the entries that it applies;
`broker.index.indexer`, which follows the applied log, takes it out instead of reading and decoding
it a second time.

Invariants: the buffer holds one contiguous range of the committed log; it is bounded by the bytes
of the payloads. A reader that falls further behind reads the log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from broker.entry.payload import Payload
from raft.log.log_format import HEADER_SIZE
from raft.replicated_log import CommittedEntry

__all__ = ["AppliedEntries", "AppliedEntry"]

_SIZE_MAX: Final = 8 << 20


@dataclass(slots=True)
class AppliedEntry:
    """Applied entry; `payload` is None for an entry that is not a data entry."""

    entry: CommittedEntry
    payload: Payload | None

    @property
    def begin(self) -> int:
        """Return the log position of the entry's header."""
        return self.entry.position - HEADER_SIZE

    @property
    def end(self) -> int:
        return self.entry.position + len(self.entry.payload)


class AppliedEntries:
    """Queue of applied entries; emptied above `size_max` bytes, if nobody takes them."""

    def __init__(self, size_max: int = _SIZE_MAX) -> None:
        self._entries: deque[AppliedEntry] = deque()
        self._size = 0
        self._size_max = size_max

    def put(self, entry: CommittedEntry, payload: Payload | None) -> None:
        if self._size > self._size_max or (
            self._entries and self._entries[-1].end != entry.position - HEADER_SIZE
        ):
            self.clear()
        self._entries.append(AppliedEntry(entry, payload))
        self._size += len(entry.payload)

    def take(self, position: int) -> AppliedEntry | None:
        """Remove and return the entry at `position`, or None; also drop the entries before it."""
        entries = self._entries
        while entries and entries[0].begin <= position:
            first = entries.popleft()
            self._size -= len(first.entry.payload)
            if first.begin == position:
                return first
        return None

    def clear(self) -> None:
        self._entries.clear()
        self._size = 0
