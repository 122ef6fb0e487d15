"""Room in the log: whether entries may still come, and whether this node could begin to lead.

Place in the data path: `raft.node.core_shell` checks here before it proposes and before it hands a
leader's entries to the core, and reserves here what a new leader writes of its own accord.

Invariants: a size that was granted can be written, with the core's own entries behind it; whoever
may become the leader with the next event has room for its first entries, or the core knows that it
has not; a full disk is tried at most every 100 ms, since each try is a system call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from raft.events import RoomChanged
from raft.fail_stop import FailStop
from raft.log.segment_log import SegmentLog

__all__ = ["ROOM_SIZE_MIN", "LogRoom"]

ROOM_SIZE_MIN: Final = 64 << 10
"""Kept free behind every entry for the core's own entries, a no-op and a configuration."""
_RETRY_MS: Final = 100
"""How often a full disk is tried for room, whatever arrives meanwhile."""

_log = logging.getLogger(__name__)


class LogRoom:
    """Room of one node's log. `on_changed` steps the core with what has become of it."""

    def __init__(
        self,
        log: SegmentLog,
        now_ms: Callable[[], int],
        fail_stop: FailStop,
        on_changed: Callable[[RoomChanged], None],
    ) -> None:
        self._log = log
        self._now_ms = now_ms
        self._fail_stop = fail_stop
        self._on_changed = on_changed
        self.writable = True
        self.can_begin = True
        """Whether there is room for a new leader's first entries."""
        self._again_ms = 0  # a full disk is not tried before

    def has(self, size: int) -> bool:
        """Return whether the log has room for `size` more bytes; notify the core of a change."""
        has_room = False
        with self._fail_stop:
            has_room = self._log.reserve(size + ROOM_SIZE_MIN)
            if not has_room and self.writable:
                self._set_writable(writable=False)
        return has_room

    def poll(self) -> None:
        """Reserve room after a full disk."""
        if not self.writable and self._log.reserve(2 * ROOM_SIZE_MIN):
            self.can_begin = True
            self._set_writable(writable=True)

    def reserve_to_begin(self, now_ms: int) -> RoomChanged | None:
        """Reserve room for a new leader's first entries; return what the core has to know before
        its next event: that may make this node the leader, and the core writes them at once.

        A start, a truncation and an install give back what was reserved, and another process may
        have it now. Room once reserved costs no system call; a full disk costs one each time."""
        if not self.can_begin:
            if now_ms < self._again_ms:
                return None
            self._again_ms = now_ms + _RETRY_MS
        if self._log.reserve(ROOM_SIZE_MIN) == self.can_begin:
            return None
        self.can_begin = not self.can_begin
        if not self.can_begin:
            self._again_ms = now_ms + _RETRY_MS
            _log.warning("the log has no room for what a leader begins with")
            self.writable = False
        return RoomChanged(now_ms=now_ms, writable=self.writable, can_begin=self.can_begin)

    def _set_writable(self, *, writable: bool) -> None:
        _log.warning("the log has %s", "room again" if writable else "no room for more entries")
        self.writable = writable
        self._on_changed(
            RoomChanged(now_ms=self._now_ms(), writable=writable, can_begin=self.can_begin)
        )
