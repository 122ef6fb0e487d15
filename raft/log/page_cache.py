"""Drops older parts of the log from the kernel's page cache.

Place in the data path: `raft.log.segment_log` calls it after a sync. What was written stays in the
kernel's page cache until memory runs short, so a log that only grows takes a fresh page for every 4
KiB. In a virtual machine the host may still have to back a fresh page: writing to such pages cost a
fifth of a broker's processor time under load. A log whose older pages are dropped is written into
the same pages again and again. Older entries are read from the disk.

Invariants: it is only a hint; nothing is lost by it, un-synced pages stay. Pages go in steps, at
most `_STEP` bytes at a time, from the first position that this process wrote.

Source: posix_fadvise(2), POSIX_FADV_DONTNEED.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import closing
from typing import Final

from raft.storage import Disk

__all__ = ["PageCacheWindow"]

_log = logging.getLogger(__name__)
_STEP: Final = 4 << 20


class PageCacheWindow:
    """Range of the log that stays cached: `size` bytes before its end; 0: all, as the kernel likes.

    The writer calls `begin` and `restart`, the syncer `advance`, each on its own thread.
    """

    def __init__(self, disk: Disk, path_of: Callable[[int], str], size: int) -> None:
        self._disk = disk
        self._path_of = path_of
        self._size = size
        self._segments: deque[int] = deque()  # first positions, from the one being dropped
        self._reached = 0  # all before it was dropped

    def restart(self, position: int, end: int) -> None:
        """Start anew: the last segment begins at `position`, is written from `end`; no sync
        runs."""
        self._segments = deque([position])
        self._reached = end

    def begin(self, position: int) -> None:
        """Note that the last segment begins at `position` now."""
        if self._size:
            self._segments.append(position)

    def is_due(self, end: int) -> bool:
        """Return whether `advance(end)` has pages to drop, which may wait for the kernel."""
        return bool(self._size) and end - self._size >= self._reached + _STEP

    def advance(self, end: int) -> None:
        """Note that the log is synced up to `end`, and drop a step of older pages."""
        if not self.is_due(end):
            return
        segments = self._segments
        segment = segments[0]
        target = self._reached + _STEP
        if len(segments) > 1 and segments[1] <= target:
            target = segments[1]
            segments.popleft()
        if target > self._reached:
            self._forget(segment, self._reached, target)
        self._reached = target

    def _forget(self, segment: int, begin: int, end: int) -> None:
        try:
            with closing(self._disk.open(self._path_of(segment), create=False)) as file:
                file.drop_cache(begin - segment, end - begin)
        except OSError as error:
            # Retention removed it, or no file can be opened now: a hint is not worth a node.
            _log.debug("pages of segment %d stay in memory: %r", segment, error)
