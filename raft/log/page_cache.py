"""Lets the kernel forget what stands well before the log's end.

Place in the data path: `raft.log.segment_log` asks it after a sync. What was written stays in the
kernel's page cache until memory runs short, so a log that only grows takes a fresh page for every
4 KiB. In a virtual machine a fresh page may be one that the host has yet to find: writing to those
cost a fifth of a broker's processor time under load. A log whose older pages go is written into the
same ones again and again. Who reads what is older reads it from the disk.

Invariants: only a hint; nothing is lost by it, what is not synced stays. Pages go in steps, at most
`_STEP` bytes at a time, from the first position that was written in this life on.

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
    """`size` bytes before the log's end stay; 0: all of it, as the kernel likes.

    `begin` and `restart` are called by who writes, `advance` by who syncs, each on its own thread.
    """

    def __init__(self, disk: Disk, path_of: Callable[[int], str], size: int) -> None:
        self._disk = disk
        self._path_of = path_of
        self._size = size
        self._segments: deque[int] = deque()  # first positions, from the one that is being let go
        self._reached = 0  # what stands before it was let go

    def restart(self, position: int, end: int) -> None:
        """The last segment begins at `position`, and is written from `end` on; no sync runs."""
        self._segments = deque([position])
        self._reached = end

    def begin(self, position: int) -> None:
        """The last segment begins there now."""
        if self._size:
            self._segments.append(position)

    def advance(self, end: int) -> None:
        """The log is synced up to `end`."""
        if not self._size or end - self._size < self._reached + _STEP:
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
            # Retention took it, or no file can be opened just now: a hint is not worth a node.
            _log.debug("pages of segment %d stay in memory: %r", segment, error)
