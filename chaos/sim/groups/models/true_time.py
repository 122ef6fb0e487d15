"""Early and late by the true time, which no simulated clock shows.

Place in the data path: `log_model` shows it each stamp, `client_checker` each delivery at the end
of a seed. Everything else judges by stamps, which follow a wrong clock.

A stamp may be ahead of the true time by as much as the right clocks are ahead, never by the error
of a wrong one; a delay may be short by what the rates of clocks explain, and, where no replica was
left that knew the group's time, by the difference between the clocks it was restarted from. Late is
judged once the group is calm, that is whole and without faults but for jumps of wall clocks: what
is due then, or was due before, is delivered within an election and what rates explain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chaos.sim.machine.violation import Violation
from chaos.sim.machine.virtual_clock import WALL_START_MS
from chaos.sim.seed.group_options import GroupOptions

__all__ = ["TrueTime"]

_SLEW: Final = 0.05  # rate by which a group may make up for clocks that differ
_CATCH_UP_MS: Final = 15_000  # of clocks' rates, from one answer of a leader to the next election
_ROUND_MS: Final = 20  # of milliseconds, and of the time between two looks


class TrueTime:
    """The checks of time; they raise Violation `time`. `now_us`: since the seed began."""

    def __init__(self, options: GroupOptions, now_us: Callable[[], int]) -> None:
        self._options = options
        self._now_us = now_us
        self._calm_since_ms: int | None = None
        self._begun: dict[tuple[str, int], int] = {}  # when, by node and incarnation

    def now_ms(self) -> int:
        """Return the time of an exact clock."""
        return WALL_START_MS + self._now_us() // 1_000

    @property
    def is_calm(self) -> bool:
        return self._calm_since_ms is not None

    def begin_calm(self) -> None:
        """Start the calm phase: the group is whole, and only clocks jump."""
        self._calm_since_ms = self.now_ms()

    def on_begun_anew(self, node: str, incarnation: int) -> None:
        """Record when a node began group time anew; only the first report counts."""
        self._begun.setdefault((node, incarnation), self.now_ms())

    def on_stamp(self, store_ms: int) -> None:
        """Check the stamp of an entry that is applied now."""
        ahead_ms = store_ms - self.now_ms()
        if ahead_ms > self._error_ms():
            raise Violation("time", f"a stamp is {ahead_ms} ms ahead of the true time")

    def check_early(
        self, name: str, due_ms: int, delivered_ms: int, *, delay_ms: int | None
    ) -> None:
        """Check that a delivery is not too early.

        `delay_ms`: the requested delay; None: `due_ms` itself was requested.
        """
        options = self._options
        rates = 2 * options.clock_rate_spread
        if delay_ms is None:
            early_ms_max = self._error_ms()
        else:
            slew = _SLEW if rates or options.wall_clock_spread_ms else 0
            early_ms_max = (rates + slew) * delay_ms + rates * _CATCH_UP_MS + _ROUND_MS
            if any(due_ms - delay_ms <= at <= delivered_ms for at in self._begun.values()):
                early_ms_max += self._error_ms()
        if delivered_ms < due_ms - early_ms_max:
            raise Violation("time", f"{name} is delivered {due_ms - delivered_ms} ms early")

    def check_late(self, name: str, due_ms: int, delivered_ms: int) -> None:
        """Check that a delivery is not too late."""
        if self._calm_since_ms is None:
            return
        late_ms = delivered_ms - max(due_ms, self._calm_since_ms)
        if late_ms > self.late_ms_max():
            raise Violation("time", f"{name} is delivered {late_ms} ms late in a calm group")

    def late_ms_max(self) -> int:
        """Return two election timeouts, since a vote may split, and what clocks explain."""
        timeout_ms = self._options.election_timeout_ms_max
        return int(2 * timeout_ms + 500 + self._error_ms())

    def _error_ms(self) -> float:
        """Return the largest error of group time while most clocks are right."""
        options = self._options
        passed_ms = self._now_us() / 1_000
        return options.wall_clock_spread_ms + options.clock_rate_spread * passed_ms + _ROUND_MS
