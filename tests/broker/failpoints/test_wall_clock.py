"""A wall clock that is off: by an offset, by a drift, in turns."""

from __future__ import annotations

from broker.failpoints.orders import ClockSetting
from broker.failpoints.wall_clock import WallClock

MS = 1_000_000


class Machine:
    def __init__(self) -> None:
        self.ms = 0

    def right_ns(self) -> int:
        return (1_700_000_000_000 + self.ms) * MS

    def monotonic_ns(self) -> int:
        return self.ms * MS

    def off_ms(self, clock: WallClock) -> int:
        return (clock.time_ns() - self.right_ns()) // MS


def test_it_jumps_drifts_and_comes_back():
    machine = Machine()
    clock = WallClock(machine.right_ns, machine.monotonic_ns)
    assert machine.off_ms(clock) == 0
    clock.put(ClockSetting(offset_ms=-3_600_000))
    assert machine.off_ms(clock) == -3_600_000
    assert clock.time() == clock.time_ns() / 1e9
    clock.put(ClockSetting(drift_ppm=-100_000))
    machine.ms += 50_000
    assert machine.off_ms(clock) == -5_000
    clock.put(ClockSetting())
    assert machine.off_ms(clock) == 0


def test_it_strobes():
    machine = Machine()
    clock = WallClock(machine.right_ns, machine.monotonic_ns)
    clock.put(ClockSetting(offset_ms=7_000, strobe_ms=200))
    seen = []
    for _ in range(4):
        seen.append(machine.off_ms(clock))
        machine.ms += 200
    assert seen == [7_000, 0, 7_000, 0]
