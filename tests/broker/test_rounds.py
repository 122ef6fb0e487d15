"""What is looked at again and again, on one timer."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.process.rounds import TICK_MS, Rounds
from raft.stalls import Stalls

INTERVALS_MS = st.integers(TICK_MS, 500)


@given(intervals_ms=st.lists(INTERVALS_MS, min_size=1, max_size=5), late_ms=st.data())
def test_nothing_comes_early_nor_a_turn_too_late(
    intervals_ms: list[int], late_ms: st.DataObject
) -> None:
    now_ms, came = 0, [[0] for _ in intervals_ms]
    rounds = Rounds(lambda: now_ms, None)
    for number, interval_ms in enumerate(intervals_ms):
        rounds.add(interval_ms, str(number), lambda number=number: came[number].append(now_ms))
    steps_ms = [0]
    for _ in range(30):
        steps_ms.append(TICK_MS + late_ms.draw(st.integers(0, 40)))
        now_ms += steps_ms[-1]
        rounds.turn()
    for interval_ms, times_ms in zip(intervals_ms, came, strict=True):
        gaps_ms = [after - before for before, after in itertools.pairwise(times_ms)]
        assert all(interval_ms <= gap_ms < interval_ms + max(steps_ms) for gap_ms in gaps_ms)
        assert now_ms - times_ms[-1] < interval_ms + max(steps_ms)


def test_what_is_due_together_comes_in_the_order_in_which_it_was_added() -> None:
    now_ms, came = 0, []
    rounds = Rounds(lambda: now_ms, None)
    for name in "abc":
        rounds.add(100, name, lambda name=name: came.append(name))
    now_ms = 100
    rounds.turn()
    rounds.turn()
    assert came == ["a", "b", "c"]


def test_an_idle_act_waits_until_it_has_something_to_do() -> None:
    now_ms, came, waiting = 0, [], False
    rounds = Rounds(lambda: now_ms, None)
    rounds.add(TICK_MS, "timers", lambda: came.append(now_ms), idle=lambda: not waiting)
    while now_ms < 500:
        now_ms += rounds.wait_ms()
        waiting = 200 <= now_ms < 300
        rounds.turn()
    assert came == [25, 125, 225, 250, 275, 300, 400, 500]


def test_an_idle_act_shares_the_wakeups_of_others() -> None:
    now_ms, came, turns = 0, [], []
    rounds = Rounds(lambda: now_ms, None)
    rounds.add(TICK_MS, "timers", lambda: came.append(now_ms), idle=lambda: True)
    rounds.add(60, "clock", lambda: None)
    while now_ms < 400:
        now_ms += rounds.wait_ms()
        rounds.turn()
        turns.append(now_ms)
    assert came == turns == [25, 60, 120, 180, 240, 300, 360, 420]


async def test_nothing_wakes_where_nothing_is_due() -> None:
    class Once(Rounds):
        def turn(self) -> None:
            raise OSError(f"woken at {self._monotonic_ms()}")

    rounds = Once(lambda: 1_000, None)
    rounds.add(TICK_MS * 4, "stats", lambda: None)
    before_s = asyncio.get_running_loop().time()
    with pytest.raises(OSError, match="woken"):
        await rounds.run()
    assert asyncio.get_running_loop().time() - before_s >= TICK_MS * 4 / 1000


def test_each_is_measured_under_its_name() -> None:
    now_ms, stalls = 0, Stalls()
    rounds = Rounds(lambda: now_ms, stalls)
    rounds.add(100, "index", lambda: None)
    rounds.add(200, "delays", lambda: None)
    now_ms = 100
    rounds.turn()
    assert set(stalls.longest_ms) <= {"index"}
    now_ms = 200
    rounds.turn()
    assert set(stalls.longest_ms) == {"index", "delays"}


async def test_what_an_act_raises_ends_the_rounds() -> None:
    counts: Counter[str] = Counter()

    def act() -> None:
        counts["came"] += 1
        if counts["came"] == 2:
            raise OSError("the disk is gone")

    clock = asyncio.get_running_loop().time
    rounds = Rounds(lambda: int(clock() * 1000), None)
    rounds.add(TICK_MS, "disk room", act)
    with pytest.raises(OSError, match="the disk is gone"):
        await asyncio.wait_for(rounds.run(), 10)
    assert counts["came"] == 2
