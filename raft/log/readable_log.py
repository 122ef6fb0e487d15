"""The core's view of the log while parts of it are under repair.

Place in the data path: stands between `raft.core.core` and `raft.log.segment_log`. Damaged entries
are hidden from the core for the time being: a follower that needs one waits, and goes on once
`raft.repair.log_repairer` has repaired it. The node creates a core only where every damaged entry
of unknown term is contained in a snapshot, so that it is committed (`raft.store.restore`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from raft.log.damage import DamagedLogError
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, Index, LogBase, Term

__all__ = ["ReadableLog"]

_log = logging.getLogger(__name__)


class ReadableLog:
    """Implements `LogStorage`."""

    def __init__(self, log: SegmentLog) -> None:
        self._log = log

    @property
    def base(self) -> LogBase:
        return self._log.base

    @property
    def first_index(self) -> Index:
        return self._log.first_index

    @property
    def last_index(self) -> Index:
        return self._log.last_index

    @property
    def config_indexes(self) -> Sequence[Index]:
        return self._log.config_indexes

    def term(self, index: Index) -> Term | None:
        """Return the term; None if the entry is damaged and its term unknown."""
        try:
            return self._log.term(index)
        except DamagedLogError as error:
            _log.debug("the term of %d is not known: %s", index, error)
            return None

    def entries(self, low: Index, high: Index, size_max: int) -> tuple[Entry, ...]:
        """Return entries up to the first damaged one; none if the first of them is damaged, or
        unconfirmed because of a damage behind it."""
        try:
            return self._log.entries(low, high, size_max)
        except DamagedLogError as error:
            _log.debug("not sent: %s", error)
            return ()
