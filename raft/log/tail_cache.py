"""The log's newest entries in memory, as references to the bytes that were appended.

Place in the data path: `raft.log.segment_log` answers reads of fresh entries, and pulls of fresh
records, from it; older entries are read from the disk and checked.

Invariant: it holds [first_index, last appended] without a gap, within its bounds.
"""

from __future__ import annotations

from raft.log.log_format import HEADER_SIZE
from raft.messages import Entry, Index

__all__ = ["TailCache"]

_ENTRIES_MAX = 8192


class TailCache:
    def __init__(self, next_index: Index, *, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._entries: dict[Index, Entry] = {}
        self._size_bytes = 0
        self.first_index = next_index  # of the next entry if empty

    def append(self, entry: Entry) -> None:
        self._entries[entry.index] = entry
        self._size_bytes += HEADER_SIZE + len(entry.payload)

    def trim(self) -> None:
        entries = self._entries
        while self._size_bytes > self._size_bytes_max or len(entries) > _ENTRIES_MAX:
            dropped = entries.pop(self.first_index)
            self._size_bytes -= HEADER_SIZE + len(dropped.payload)
            self.first_index += 1

    def get(self, index: Index) -> Entry:
        return self._entries[index]

    def slice(self, low: Index, high: Index, size_max: int) -> tuple[Entry, ...]:
        """Return entries of [low, high): the first, then while they fit in `size_max` stored
        bytes."""
        entries: list[Entry] = []
        for index in range(low, high):
            entry = self._entries[index]
            size_max -= HEADER_SIZE + len(entry.payload)
            if size_max < 0 and entries:
                break
            entries.append(entry)
        return tuple(entries)

    def truncate_from(self, index: Index) -> None:
        for gone in range(max(index, self.first_index), self.first_index + len(self._entries)):
            self._size_bytes -= HEADER_SIZE + len(self._entries.pop(gone).payload)
        self.first_index = min(self.first_index, index)

    def clear(self, next_index: Index) -> None:
        self._entries.clear()
        self._size_bytes = 0
        self.first_index = next_index
