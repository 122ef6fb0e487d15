"""Failpoints themselves: who passes is counted, and what is armed there is done.

Place in the data path: `broker.failpoints.installation` lets calls pass them, on the event loop and
on threads; `broker.failpoints.switchboard` arms and disarms them.

Invariants: hits and fired counts are exact, whichever threads pass; a stuck pass goes on as soon as
its point is disarmed, and after its bound in any case; who passes an unarmed point is counted and
held up by nothing else. Chance comes from the order's seed.

Source: FreeBSD fail(9), etcd's gofail.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Final

from broker.failpoints.orders import ERRORS, Action, Arming, OrderError, PointReport

__all__ = ["ALWAYS", "FailPoint", "Label", "Point", "When"]

Label = Callable[..., str | None]
"""Names a pass by the arguments of the call; None: it doesn't count. See `Arming.only`."""

ALWAYS: Final = frozenset({Action.CRASH, Action.DELAY, Action.STUCK})
_STUCK_MS_MAX: Final = 60_000  # where an order names no bound
_POLL_S: Final = 0.02

_log = logging.getLogger(__name__)


class When(Enum):
    """On which side of a call a point stands."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A row of the catalogue. `place`: "module:Class.method" or "module:function" that the point
    stands at, on the side `when`."""

    name: str
    place: str
    when: When
    summary: str
    actions: frozenset[Action] = ALWAYS
    label: Label | None = None


@dataclass(slots=True)
class _Armed:
    arming: Arming
    left_out: int
    left: int | None  # None: no bound
    rng: random.Random
    released: threading.Event = field(default_factory=threading.Event)


class FailPoint:
    """One point of this process."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self._lock = threading.Lock()
        self._armed: _Armed | None = None
        self._hits = 0
        self._fired = 0
        self._waiting = 0

    def check(self, arming: Arming) -> None:
        """Raise OrderError where this point can't do what is wanted."""
        name, action = self.point.name, arming.action
        if action not in self.point.actions:
            possible = ", ".join(sorted(each.value for each in self.point.actions))
            raise OrderError(f"{name}: {action.value} is not possible here, only {possible}")
        if action is Action.DELAY and not arming.ms:
            raise OrderError(f"{name}: a delay needs ms")
        if action is Action.ERROR or (action is Action.SHORT and arming.errno):
            if arming.errno not in ERRORS:
                raise OrderError(f"{name}: errno {arming.errno!r} is none of {', '.join(ERRORS)}")
        elif arming.errno:
            raise OrderError(f"{name}: {action.value} takes no errno")
        if arming.only and self.point.label is None:
            raise OrderError(f"{name}: its passes have no labels for `only` to match")

    def arm(self, arming: Arming) -> None:
        """Arm the point, checked before, in place of what was armed; its passes count anew."""
        armed = _Armed(arming, arming.after, arming.count or None, random.Random(arming.seed))
        with self._lock:
            before, self._armed = self._armed, armed
        if before is not None:
            before.released.set()

    def disarm(self) -> None:
        """Disarm the point, and release whoever is stuck there."""
        with self._lock:
            before, self._armed = self._armed, None
        if before is not None:
            before.released.set()

    @property
    def is_armed(self) -> bool:
        """Whether a pass may do more than be counted."""
        return self._armed is not None

    def report(self) -> PointReport:
        with self._lock:
            return PointReport(
                name=self.point.name,
                summary=self.point.summary,
                place=f"{self.point.when.value} {self.point.place}",
                actions=sorted(self.point.actions, key=lambda action: action.value),
                hits=self._hits,
                fired=self._fired,
                armed=None if self._armed is None else self._armed.arming,
                waiting=self._waiting,
            )

    def passed(self, label: str = "") -> Arming | None:
        """Count a pass, and carry out the action that is armed.

        Returns the order where its action is the caller's to carry out (`LIE`, `SHORT`), else None.
        Raises OSError where the action is an error.
        """
        armed = self._fire(label)
        if armed is None:
            return None
        arming = armed.arming
        if arming.action is Action.DELAY:
            self._wait(armed, arming.ms)
        elif arming.action is Action.STUCK:
            self._wait(armed, arming.ms or _STUCK_MS_MAX)
        return self._act(arming)

    async def passed_async(self, label: str = "") -> None:
        """Count a pass of a coroutine, which waits without holding up the event loop."""
        armed = self._fire(label)
        if armed is None:
            return
        arming = armed.arming
        if arming.action in {Action.DELAY, Action.STUCK}:
            deadline = time.monotonic() + (arming.ms or _STUCK_MS_MAX) / 1000
            with self._counted_waiting():
                # An order releases it, and may come from any thread.
                while (left := deadline - time.monotonic()) > 0 and not armed.released.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(min(left, _POLL_S))
        self._act(arming)

    def labelled(self, arguments: tuple[Any, ...]) -> str | None:
        """Return the label of a call with these arguments; None if the call is no pass."""
        return "" if self.point.label is None else self.point.label(*arguments)

    def _fire(self, label: str) -> _Armed | None:
        with self._lock:
            self._hits += 1
            armed = self._armed
            if armed is None or armed.left == 0:
                return None
            arming = armed.arming
            if arming.only and not fnmatchcase(label, arming.only):
                return None
            if armed.left_out:
                armed.left_out -= 1
                return None
            if arming.probability < 1 and armed.rng.random() >= arming.probability:
                return None
            if armed.left is not None:
                armed.left -= 1
            self._fired += 1
            return armed

    def _wait(self, armed: _Armed, ms: int) -> None:
        with self._counted_waiting():
            armed.released.wait(ms / 1000)

    def _counted_waiting(self) -> _Waiting:
        return _Waiting(self)

    def count_waiting(self, change: int) -> None:
        with self._lock:
            self._waiting += change

    def _act(self, arming: Arming) -> Arming | None:
        name, action = self.point.name, arming.action
        if action is Action.CRASH:
            # Unbuffered: what a probe finds in the output proves who killed the process.
            os.write(2, f"failpoint {name}: crash\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
            os._exit(137)  # SIGKILL is on its way, and nothing else may happen meanwhile
        if action is Action.ERROR:
            number = ERRORS[arming.errno]
            _log.warning("failpoint %s: %s", name, arming.errno)
            raise OSError(number, f"{os.strerror(number)} (failpoint {name})")
        return arming if action in {Action.LIE, Action.SHORT} else None


class _Waiting:
    """Counts a pass as waiting while it does."""

    __slots__ = ("_point",)

    def __init__(self, point: FailPoint) -> None:
        self._point = point

    def __enter__(self) -> None:
        self._point.count_waiting(1)

    def __exit__(self, *_: object) -> None:
        self._point.count_waiting(-1)
