"""The clocks of a simulated machine whose wall clock can be put wrong.

Place in the data path: the clocks of brokers in the world `sim`, which faults of clocks set.

Invariant: the monotonic clock is that of any simulated machine, whatever the wall clock says.

Source: `broker.failpoints.wall_clock`, which does the same to a real broker.
"""

from __future__ import annotations

from broker.failpoints.wall_clock import WallClock
from chaos.sim.groups.machine import Site
from chaos.sim.machine.virtual_clock import VirtualClock

__all__ = ["SettableClock"]


class SettableClock(VirtualClock):
    """The clocks of the machine `name`; `wrong` is what was set on top of its wall clock."""

    __slots__ = ("wrong",)

    def __init__(self, site: Site, name: str) -> None:
        super().__init__(
            site.scheduler,
            site.generator(f"clock/{name}"),
            rate_spread=site.clock_rate_spread,
            wall_spread_ms=site.wall_clock_spread_ms,
            lateness_us_max=site.timer_lateness_us_max,
            offset_s_max=site.clock_offset_s_max,
            uptime_s=site.uptime_s,
        )
        scheduler = site.scheduler
        self.wrong = WallClock(super().wall_ns, lambda: scheduler.now_us * 1_000)

    def wall_ns(self) -> int:
        return self.wrong.time_ns()
