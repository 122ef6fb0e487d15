"""The core's clock: stalls of the loop don't count, up to a bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raft.node.attended_clock import AttendedClock

PERIOD_MS = 40
BUDGET_MS = 600


class Loop:
    """A loop whose time the test moves; `attend` looks as often as a loop at work does."""

    def __init__(self) -> None:
        self.real_ms = 1_000
        self.clock = AttendedClock(
            lambda: self.real_ms / 1000, period_ms=PERIOD_MS, budget_ms=BUDGET_MS
        )

    def attend(self, ms: int) -> None:
        while ms > 0:
            step = min(ms, PERIOD_MS)
            self.real_ms += step
            self.clock.sample()
            ms -= step

    def stall(self, ms: int) -> None:
        self.real_ms += ms


def test_a_loop_at_work_has_the_clocks_time() -> None:
    loop = Loop()
    loop.attend(10_000)
    assert loop.clock.now_ms() == loop.real_ms


def test_a_stall_does_not_count_whoever_asks_first() -> None:
    for ask_first in (True, False):
        loop = Loop()
        loop.attend(1_000)
        before = loop.clock.now_ms()
        loop.stall(400)
        if not ask_first:
            loop.clock.sample()
        assert 0 <= loop.clock.now_ms() - before <= PERIOD_MS


def test_of_a_long_pause_most_counts() -> None:
    loop = Loop()
    loop.attend(1_000)
    before = loop.clock.now_ms()
    loop.stall(10_000)
    assert loop.clock.now_ms() - before == 10_000 - BUDGET_MS


def test_a_starved_loop_still_sees_time_pass() -> None:
    """A leader that is gone is replaced, in twice the time at worst."""
    loop = Loop()
    before = loop.clock.now_ms()
    for _ in range(100):
        loop.stall(500)
        loop.clock.sample()
    assert loop.clock.now_ms() - before >= 50_000 // 2 - BUDGET_MS


LENGTHS_MS = st.one_of(st.integers(0, 30), st.integers(0, 3_000))


@given(st.lists(st.tuples(st.booleans(), LENGTHS_MS), max_size=60))
def test_it_never_goes_back_nor_ahead_and_is_not_too_slow(steps: list[tuple[bool, int]]) -> None:
    loop = Loop()
    began, last = loop.real_ms, loop.clock.now_ms()
    for stalls, ms in steps:
        if stalls:
            loop.stall(ms)
        else:
            loop.attend(ms)
        now = loop.clock.now_ms()
        assert last <= now <= loop.real_ms
        last = now
    assert last - began >= (loop.real_ms - began) // 2 - BUDGET_MS - len(steps)
