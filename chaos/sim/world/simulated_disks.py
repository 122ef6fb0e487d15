"""Disks of simulated brokers that fail, lie and are slow as the laboratory says.

Place in the data path: the disks of the world `sim`. Its part of failpoints has the two points of a
disk, `disk.write` and `disk.fsync`; a fault that arms another one is not possible there.

Invariants: unless something is armed the disk is that of the simulated groups; what a lie or a
failed fsync left behind is lost by a power failure, and read until then; counts outlive the
process, since they are of the machine.

Source: `broker.failpoints.faulty_disk`, which does the same to a real broker.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, Protocol

from broker.failpoints.orders import ERRORS
from chaos.sim.groups.broker_machine import MachineDisk
from chaos.sim.machine.disk import DiskFault, SimFile
from chaos.systems.base import PointAction, PointCounts, SystemFailedError

__all__ = ["DiskOwner", "DiskPoint", "DiskPoints", "SimulatedFailpoints", "WorldDisk"]

WRITE: Final = "disk.write"
FSYNC: Final = "disk.fsync"
_ACTIONS: Final = {
    WRITE: frozenset({"error", "short"}),
    FSYNC: frozenset({"error", "lie", "delay"}),
}


class DiskPoint:
    """One point of one machine's disk: who passes is counted, and told what is to happen."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._armed: PointAction | None = None
        self._left_out = 0
        self.reached = 0
        self.fired = 0
        self._fired_before = 0

    def arm(self, action: PointAction | None) -> None:
        """Arm the point anew; None: nothing happens there any more."""
        self._armed = action
        self._left_out = 0 if action is None else action.after
        self._fired_before = self.fired

    def passed(self) -> PointAction | None:
        """Count a pass; return what is to be done, None: nothing."""
        self.reached += 1
        armed = self._armed
        if armed is None or (armed.count and self.fired - self._fired_before >= armed.count):
            return None
        if self._left_out:
            self._left_out -= 1
            return None
        if armed.share < 1 and self._rng.random() >= armed.share:
            return None
        self.fired += 1
        return armed


class DiskPoints:
    """The points of one machine's disk."""

    def __init__(self, rng: random.Random) -> None:
        self.write: Final = DiskPoint(rng)
        self.fsync: Final = DiskPoint(rng)

    def disarm(self) -> None:
        """Disarm all: what was armed ends with the process."""
        self.write.arm(None)
        self.fsync.arm(None)

    def find(self, name: str) -> DiskPoint | None:
        return {WRITE: self.write, FSYNC: self.fsync}.get(name)


class WorldDisk(MachineDisk):
    """The disk of one machine; `points` is set by it."""

    points: DiskPoints
    opened = False  # by the process that runs

    def open(self, path: str, *, create: bool) -> SimFile:
        self.opened = True
        return super().open(path, create=create)

    def write(self, inode: Any, data: bytes, offset: int) -> int:
        armed = self.points.write.passed()
        if armed is not None and armed.action == "short":
            data = data[: max(1, len(data) // 2)]
        elif armed is not None:
            self.fault = DiskFault(operation="write", error=ERRORS[armed.errno])
        return super().write(inode, data, offset)

    def sync(self, inode: Any, upto: int | None = None) -> None:
        armed = self.points.fsync.passed()
        if armed is not None and armed.action == "lie":
            return
        if armed is not None and armed.action == "error":
            self.fault = DiskFault(operation="sync", error=ERRORS[armed.errno])
        super().sync(inode, upto)

    def sync_directory(self, path: str) -> None:
        armed = self.points.fsync.passed()
        if armed is None or armed.action != "lie":
            super().sync_directory(path)


class DiskOwner(Protocol):
    """A machine with such a disk; each round of its fsyncs takes `sync_slow_us` longer."""

    points: DiskPoints
    sync_slow_us: int

    @property
    def alive(self) -> bool: ...


class SimulatedFailpoints:
    """The points of all disks, by node."""

    def __init__(self, machines: Mapping[str, DiskOwner]) -> None:
        self._machines = machines

    async def arm(self, node: str, point: str, action: PointAction) -> None:
        found = self._machines[node].points.find(point)
        if found is None or action.action not in _ACTIONS[point]:
            raise SystemFailedError(f"{node}: no simulated {point} can {action.action}")
        found.arm(action)
        if action.action == "delay":
            self._machines[node].sync_slow_us = action.ms * 1_000

    async def disarm(self, node: str, point: str) -> None:
        found = self._machines[node].points.find(point)
        if found is None:
            raise SystemFailedError(f"{node} has no simulated {point}")
        found.arm(None)
        self._machines[node].sync_slow_us = 0

    async def counts(self, node: str) -> Mapping[str, PointCounts] | None:
        machine = self._machines[node]
        if not machine.alive:
            return None
        return {
            name: PointCounts(reached=point.reached, fired=point.fired, waiting=0, actions=actions)
            for name, actions in _ACTIONS.items()
            if (point := machine.points.find(name)) is not None
        }
