"""When committed entries are applied: at the end of a turn, in groups, and bounded.

Place in the data path: `raft.node.core_shell` notes here that the commit index has moved; a turn of
`raft.node.applier` follows, and `on_applied` behind it. What is applied at the end of the turn that
has committed it can be answered in the same one (docs/decisions/0031-the-end-of-a-turn.md).

Invariants: at most one turn is due at a time; what it leaves is due in the loop's next one, so that
what has waited meanwhile is read; an entry that a damaged log can't hand out is tried again, and
nothing behind it is applied; the core knows whether the lag keeps it from serving.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from raft.core.core import Core
from raft.events import ReplayChanged
from raft.fail_stop import FailStop, stops_node
from raft.log.damage import DamagedLogError
from raft.messages import Index
from raft.node.applier import Applier
from raft.repair.reminders import Reminders
from raft.stalls import Stalls, section
from raft.turn import Turn

__all__ = ["WAITING_ENTRIES_MAX", "ApplySchedule"]

WAITING_ENTRIES_MAX: Final = 32
"""Committed entries that a follower which is kept busy lets wait for more."""
_WAITS_S_MAX: Final = 0.005  # as long as a notice of a commit does
_DAMAGE_RETRY_S: Final = 0.1
_LAG_BEGINS: Final = 1_000  # entries to be applied: some tenths of a second
_LAG_ENDS: Final = 50

_log = logging.getLogger(__name__)


class ApplySchedule:
    """Schedule of one applier. `on_applied` is called behind a turn with the index applied before
    it; `step` steps the core."""

    def __init__(
        self,
        core: Core,
        applier: Applier,
        *,
        now_ms: Callable[[], int],
        turn: Turn,
        fail_stop: FailStop,
        step: Callable[[ReplayChanged], None],
        on_applied: Callable[[Index], None],
        stalls: Stalls | None,
    ) -> None:
        self._core = core
        self._applier = applier
        self._now_ms = now_ms
        self._turn = turn
        self._step = step
        self._on_applied = on_applied
        self._section = section(stalls, "apply")
        self._loop = asyncio.get_running_loop()
        self._reminders = Reminders()
        self._timer: asyncio.TimerHandle | None = None
        self._is_scheduled = False
        self._is_replaying = False
        self.is_due = False
        """Whether a turn is scheduled, or waits for more entries."""
        self.fail_stop = fail_stop
        self.stopped = False

    def due(self, *, later: bool = False) -> None:
        """Apply at the end of this turn; `later`: in the loop's next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_scheduled:
            self._is_scheduled = self.is_due = True
            (self._turn.soon if later else self._turn.at_end)(self._apply)

    def due_in(self, delay_s: float) -> None:
        """Apply after a while, whatever is committed meanwhile."""
        self._is_scheduled = self.is_due = True
        self._loop.call_later(delay_s, self._apply)

    def wait(self) -> None:
        """Apply soon, with what comes until then. Caller's duty: nothing `is_due`."""
        self.is_due = True
        self._timer = self._loop.call_later(_WAITS_S_MAX, self._apply_waiting)

    def stop(self) -> None:
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note_replay(self) -> None:
        """Notify the core when the lag of application starts or stops to keep it from serving."""
        lag = self._core.commit_index - self._applier.applied_index
        if self._is_replaying != (lag > (_LAG_ENDS if self._is_replaying else _LAG_BEGINS)):
            self._is_replaying = not self._is_replaying
            self._step(ReplayChanged(now_ms=self._now_ms(), replaying=self._is_replaying))

    @stops_node
    def _apply_waiting(self) -> None:
        self.due()

    @stops_node
    def _apply(self) -> None:
        """Apply what is committed, bounded in entries and time."""
        self._is_scheduled = False
        self.is_due = self._timer is not None
        core, applier = self._core, self._applier
        applied_before = applier.applied_index
        try:
            with self._section:
                applier.turn(core.commit_index, core.current_term)
        except DamagedLogError as error:
            if self._reminders.due("damage", error.damage.last_index, self._now_ms()):
                _log.error("nothing is applied until it is mended or dropped: %s", error)
            self.due_in(_DAMAGE_RETRY_S)
            return
        self._on_applied(applied_before)
        self.note_replay()
        if applier.applied_index < core.commit_index:
            self.due(later=True)
