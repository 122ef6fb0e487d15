"""What failpoints cost: nothing without `--failpoints`, and how much with them.

    python -m benchmarks.failpoints

Without them the functions at all places are the very objects that their modules define: that is
checked, and is the proof. With them one pass of a point is measured, unarmed and armed for others,
and a write with its fsync over the journaling disk against the same over the plain one.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from broker.failpoints.catalogue import DISK_POINTS, points_of
from broker.failpoints.faulty_disk import FaultyDisk
from broker.failpoints.installation import Installation, resolve
from broker.failpoints.orders import Action, Arming
from broker.failpoints.points import FailPoint, Point, When
from broker.failpoints.switchboard import Switchboard
from raft.log.disk import OsDisk
from raft.storage import Disk

_CALLS = 200_000
_WRITES = 300
_SIZE = 4_096


def probe(number: int) -> int:
    """Stand for a function with a point."""
    return number


def _ns_per_call(call: Callable[[int], int]) -> float:
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter_ns()
        for _ in range(_CALLS):
            call(1)
        best = min(best, (time.perf_counter_ns() - begin) / _CALLS)
    return best


def _us_per_write(disk: Disk) -> float:
    file = disk.open("file", create=True)
    file.allocate(_WRITES * _SIZE)
    file.sync()
    took = []
    for number in range(_WRITES):
        begin = time.perf_counter_ns()
        file.pwritev([bytes([number % 255 + 1]) * _SIZE], number * _SIZE)
        file.sync()
        took.append((time.perf_counter_ns() - begin) / 1_000)
    file.close()
    return statistics.median(took)


def main() -> None:
    rows = points_of("raft")
    places = [resolve(row.place) for row in rows]
    before = [vars(owner)[name] for owner, name in places]
    board = Switchboard()
    board.install()
    replaced = sum(vars(o)[n] is not f for (o, n), f in zip(places, before, strict=True))
    board.remove()
    same = all(vars(o)[n] is f for (o, n), f in zip(places, before, strict=True))
    plain = all(not hasattr(function, "__wrapped__") or _is_own(function) for function in before)
    print(f"points: {len(rows)} at calls, {len(DISK_POINTS)} of the disk")
    print(f"not installed: the modules' own functions: {plain}; installed: {replaced} replaced;")
    print(f"  removed: all as before: {same}")
    print(f"call without a point: {_ns_per_call(probe):.0f} ns")
    point = FailPoint(
        Point(
            name="p", place="benchmarks.failpoints:probe", when=When.BEFORE, summary="", label=None
        )
    )
    installation = Installation()
    import benchmarks.failpoints as module  # noqa: PLC0415 - where `probe` is replaced

    installation.put_points([point])
    print(f"passing an unarmed point: {_ns_per_call(module.probe):.0f} ns")
    point.arm(Arming(point="p", action=Action.CRASH, after=1_000_000_000))
    print(f"passing an armed point that does not fire: {_ns_per_call(module.probe):.0f} ns")
    installation.remove()
    points = {row.name: FailPoint(row) for row in DISK_POINTS}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for name, disk in (
            ("plain", OsDisk(Path(folder))),
            ("journaled", FaultyDisk(Path(folder), points)),
        ):
            print(f"write of {_SIZE} bytes and fsync, {name}: {_us_per_write(disk):.0f} us")


def _is_own(function: Callable[..., object]) -> bool:
    """Whether a wrapper is the module's own, such as `stops_node`'s."""
    return not function.__code__.co_filename.endswith("installation.py")


if __name__ == "__main__":
    main()
