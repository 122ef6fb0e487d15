"""Check whether a simulated node's log has room for entries, before anything is written.

Place in the data path: what `raft.node.core_shell` does with `SegmentLog.reserve`: `SimNode` checks
before it proposes and before it hands entries of a leader to the core. When the answer changes, the
core is notified; a leader without room transfers leadership, and the disk is polled until room is
back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from chaos.sim.machine.scheduler import Scheduler
from raft.core.core import Core
from raft.log.segment_log import SegmentLog
from raft.messages import NodeId

__all__ = ["Room"]


class Owner(Protocol):
    """The node whose room is checked."""

    name: NodeId

    @property
    def core(self) -> Core: ...

    @property
    def log(self) -> SegmentLog: ...

    def when_awake(self, action: Callable[[], None]) -> None: ...

    def guard(self, action: Callable[[], None]) -> bool: ...

    def step_room(self, *, writable: bool) -> None: ...

    def step_transfer(self, target: NodeId) -> None: ...


class Room:
    """The room of one incarnation; it does nothing once `stopped` is set (the node is dead).

    `size_min` is kept free behind every entry; 0: nothing is checked, and a full disk stops the
    node.
    """

    def __init__(
        self,
        owner: Owner,
        scheduler: Scheduler,
        counts: dict[str, int],
        *,
        size_min: int,
        poll_every_us: int,
    ) -> None:
        self._owner = owner
        self._scheduler = scheduler
        self._counts = counts
        self._size_min = size_min
        self._poll_every_us = poll_every_us
        self.writable = True
        self.stopped = False

    def has(self, size: int) -> bool:
        """Return whether the log has room for `size` more bytes. Raises OSError, and CrashNow."""
        if not self._size_min or self._owner.log.reserve(size + self._size_min):
            return True
        if self.writable:
            self.writable = False
            self._counts["logs_without_room"] += 1
            self._owner.step_room(writable=False)
            self._leave()
            self._poll_later()
        return False

    def _leave(self) -> None:
        """Transfer leadership from a leader without room to a follower with room."""
        if self.stopped:
            return
        core = self._owner.core
        target = core.successor()
        if target is not None and core.progress[target].writable and core.ready:
            self._owner.step_transfer(target)

    def _poll_later(self) -> None:
        self._scheduler.after(self._poll_every_us, partial(self._owner.when_awake, self._poll))

    def _poll(self) -> None:
        if not self.stopped:
            self._owner.guard(self._poll_again)

    def _poll_again(self) -> None:
        if self._owner.log.reserve(2 * self._size_min):
            self.writable = True
            self._counts["rooms_found_again"] += 1
            self._owner.step_room(writable=True)
        else:
            self._poll_later()
