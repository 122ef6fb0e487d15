"""All failpoints of one process: installed at its start, switched by orders.

Place in the data path: `ledgermq broker --failpoints` makes one and installs it before the broker;
`broker.failpoints.handler` passes orders on to it.

Invariants: an order is carried out whole or refused whole; points and clock of a process are one
set, whichever broker object lives in it; `remove` leaves the process as it was.
"""

from __future__ import annotations

import functools
import logging
import time

import msgspec

from broker.failpoints.catalogue import DISK_POINTS, points_of
from broker.failpoints.faulty_disk import FaultyDisk
from broker.failpoints.installation import Installation
from broker.failpoints.orders import Order, OrderError, Report
from broker.failpoints.points import FailPoint
from broker.failpoints.wall_clock import WallClock

__all__ = ["Switchboard"]

_DISK_USERS = {
    "raft": "raft.store.node_store",
    "pysyncobj": "raft.pysyncobj.store",
    "async": "broker.ha.store",
    "sync": "broker.ha.store",
}
_log = logging.getLogger(__name__)


class Switchboard:
    """The failpoints, disk and clock of a process; `engine` is the one that its broker runs on."""

    def __init__(self, engine: str = "raft") -> None:
        self._engine = engine
        self._rows = points_of(engine)
        self._points = {row.name: FailPoint(row) for row in (*self._rows, *DISK_POINTS)}
        self._clock = WallClock(time.time_ns, time.monotonic_ns)
        self._installation = Installation()

    def install(self) -> None:
        """Put points, disk and clock in their places, before any part of a broker is made. Raises
        LookupError where a place does not exist."""
        put = self._installation
        put.put_points(self._points[row.name] for row in self._rows)
        faulty = functools.partial(FaultyDisk, points=self._points)
        put.replace_in(_DISK_USERS[self._engine], "OsDisk", faulty)
        put.replace(time, "time_ns", self._clock.time_ns)
        put.replace(time, "time", self._clock.time)
        _log.warning("failpoints: this process can be made to crash, wait, fail and lie by request")

    def remove(self) -> None:
        """Restore what `install` replaced, and release every call that is stuck."""
        for point in self._points.values():
            point.disarm()
        self._installation.remove()

    def carry_out(self, order: Order) -> Report:
        """Carry the order out and report. Raises OrderError with nothing changed."""
        for arming in order.arm:
            self._point(arming.point).check(arming)
        names = list(self._points) if "*" in order.disarm else order.disarm
        for point in [self._point(name) for name in names]:
            point.disarm()
        for arming in order.arm:
            self._point(arming.point).arm(arming)
            _log.warning("failpoint armed: %s", msgspec.json.encode(arming).decode())
        if order.clock is not None:
            self._clock.put(order.clock)
            _log.warning("wall clock put wrong: %s", msgspec.json.encode(order.clock).decode())
        return Report(
            points=[point.report() for point in self._points.values()],
            clock=self._clock.setting,
            clock_off_ms=self._clock.off_ns() // 1_000_000,
        )

    def clock(self) -> dict[str, int]:
        """Return the wall clock's setting and by how much it is off, for status answers."""
        return {
            **msgspec.structs.asdict(self._clock.setting),
            "off_ms": self._clock.off_ns() // 1_000_000,
        }

    def _point(self, name: str) -> FailPoint:
        point = self._points.get(name)
        if point is None:
            raise OrderError(f"there is no failpoint {name!r}; `list` names all")
        return point
