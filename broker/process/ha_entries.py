"""Reader of a master-slave engine's entries for the index by key.

Place in the data path: between `broker.ha.engine`, which frames entries as RocketMQ's CommitLog,
and `broker.index.indexer`. A broker on another engine does not import it.
"""

from __future__ import annotations

from broker.ha.engine import HaLog
from broker.index.entry_reader import StoredEntry
from raft.log.log_format import CorruptLogError
from raft.replicated_log import ReplicatedLog

__all__ = ["HaEntryReader"]


class HaEntryReader:
    """Implements `EntryReader`; a BLANK is an entry without a payload."""

    def __init__(self, log: ReplicatedLog) -> None:
        assert isinstance(log, HaLog)
        self._log = log

    def read(self, position: int) -> StoredEntry:
        """See EntryReader. Where a slave's log was cut, no entry may begin at a position that the
        index has: that is a LookupError, too."""
        try:
            framed = self._log.entry_at(position)
        except CorruptLogError as error:
            raise LookupError(str(error)) from error
        end = position + framed.size
        return StoredEntry(end, framed.chain, framed.payload, framed.position)
