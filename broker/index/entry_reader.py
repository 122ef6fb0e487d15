"""How the indexer reads a log's entries by position: each engine frames them in its own way.

Place in the data path: `broker.index.indexer` walks the log with it. The engines whose entries have
the header of `raft.log.log_format` are read by `RaftEntryReader`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from raft.log.log_format import HEADER, HEADER_SIZE, MAGIC
from raft.messages import EntryKind
from raft.replicated_log import ReplicatedLog

__all__ = ["EntryReader", "RaftEntryReader", "StoredEntry"]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of the log, read by its position.

    `payload` is None where it is no data entry; `position` is as in `CommittedEntry`; the next
    entry begins at `end`; `chain` is the log's chain up to and with this entry.
    """

    end: int
    chain: int
    payload: bytes | None
    position: int


class EntryReader(Protocol):
    def read(self, position: int) -> StoredEntry:
        """Return the entry that begins at `position`. Raises LookupError where the log does not
        have it, DamagedLogError."""


class RaftEntryReader:
    """Reader of entries behind the header of the Raft log."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log

    def read(self, position: int) -> StoredEntry:
        """See EntryReader."""
        header = self._log.read(position, HEADER_SIZE)
        magic, size, _, _, own_position, kind, _, chain = HEADER.unpack(header)
        if (magic, own_position) != (MAGIC, position):
            raise LookupError(f"no entry begins at {position}")
        begin = position + HEADER_SIZE
        payload = self._log.read(begin, size - HEADER_SIZE) if kind == EntryKind.DATA else None
        return StoredEntry(position + size, chain, payload, begin)
