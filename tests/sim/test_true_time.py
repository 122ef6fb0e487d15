"""The rules of the true time, each broken once, and whose clocks may be wrong at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from chaos.sim.groups.models.client_checker import ClientChecker
from chaos.sim.groups.models.log_model import LogModel
from chaos.sim.groups.models.true_time import TrueTime
from chaos.sim.groups.wall_clocks import HOUR_MS, WallClocks
from chaos.sim.machine.violation import Violation
from chaos.sim.machine.virtual_clock import WALL_START_MS
from chaos.sim.seed.group_options import draw_group_options
from client.errors import IllegalMessageError, MaybeStoredError

OPTIONS = replace(
    draw_group_options(0, 3),
    clock_rate_spread=0.0,
    wall_clock_spread_ms=0,
    election_timeout_ms_max=1_000,
)
NOW_MS = WALL_START_MS + 60_000


@dataclass
class World:
    options: object = OPTIONS
    now_us: int = 60_000_000
    true_time: TrueTime = field(init=False)

    def __post_init__(self) -> None:
        self.true_time = TrueTime(self.options, lambda: self.now_us)  # type: ignore[arg-type]


def test_a_stamp_may_not_be_ahead_of_the_true_time() -> None:
    times = World().true_time
    times.on_stamp(NOW_MS)
    times.on_stamp(NOW_MS - HOUR_MS)  # proposed long ago, by somebody who was cut off
    with pytest.raises(Violation, match="ahead"):
        times.on_stamp(NOW_MS + 100)
    World(replace(OPTIONS, wall_clock_spread_ms=2_000)).true_time.on_stamp(NOW_MS + 1_900)


@pytest.mark.parametrize("delay_ms", [None, 5_000])
def test_nothing_may_be_early(delay_ms: int | None) -> None:
    times = World().true_time
    times.check_early("v1", NOW_MS, NOW_MS, delay_ms=delay_ms)
    with pytest.raises(Violation, match="v1 is delivered 100 ms early"):
        times.check_early("v1", NOW_MS, NOW_MS - 100, delay_ms=delay_ms)


def test_a_delay_may_be_short_by_the_clocks_where_group_time_began_anew() -> None:
    """All replicas had restarted, and the clocks from which it went on differ by two seconds."""
    world = World(replace(OPTIONS, wall_clock_spread_ms=2_000))
    times = world.true_time
    with pytest.raises(Violation, match="1900 ms early"):
        times.check_early("v1", NOW_MS + 5_000, NOW_MS + 3_100, delay_ms=5_000)
    world.now_us += 1_000_000
    times.on_begun_anew("n0", 2)
    times.check_early("v1", NOW_MS + 5_000, NOW_MS + 3_100, delay_ms=5_000)
    with pytest.raises(Violation, match="4000 ms early"):
        times.check_early("v1", NOW_MS + 5_000, NOW_MS + 1_000, delay_ms=5_000)
    with pytest.raises(Violation, match="1900 ms early"):  # it was sent later
        times.check_early("v2", NOW_MS + 7_000, NOW_MS + 5_100, delay_ms=5_000)
    world.now_us += 60_000_000
    times.on_begun_anew("n0", 2)  # once told, it is over
    with pytest.raises(Violation, match="1900 ms early"):
        times.check_early("v3", NOW_MS + 65_000, NOW_MS + 63_100, delay_ms=5_000)


def test_late_is_judged_once_the_group_is_calm() -> None:
    world = World()
    world.true_time.check_late("v1", NOW_MS - HOUR_MS, NOW_MS)
    world.true_time.begin_calm()
    world.true_time.check_late("v1", NOW_MS - HOUR_MS, NOW_MS + 2_400)
    with pytest.raises(Violation, match="v1 is delivered 2600 ms late"):
        world.true_time.check_late("v1", NOW_MS - HOUR_MS, NOW_MS + 2_600)


def test_a_first_send_is_no_repetition() -> None:
    checker = ClientChecker(LogModel(Counter(), lambda: 0), Counter())
    value = checker.new_value()
    value.attempts = 1
    checker.check_refusal([value], IllegalMessageError(13, "too long", "n0"))
    refusal = MaybeStoredError(13, "outcome unknown: ...", "n0")
    with pytest.raises(Violation, match="sent before"):
        checker.check_refusal([value], refusal)
    value.attempts = 2
    checker.check_refusal([value], refusal)


def test_a_pull_is_not_held_longer_than_it_asked() -> None:
    world = World()
    checker = ClientChecker(LogModel(Counter(), lambda: 0, world.true_time), Counter())
    world.true_time.begin_calm()
    for held_ms in (3_000, 5_500):
        with checker.held(3_000):
            world.now_us += held_ms * 1_000
    with pytest.raises(Violation, match="held"), checker.held(3_000):
        world.now_us += 6_200_000


@dataclass
class _Clock:
    wall_offset_ms: int = 7


@dataclass
class _Node:
    name: str
    clock: _Clock = field(default_factory=_Clock)


def test_no_more_clocks_are_wrong_than_a_group_bears() -> None:
    for count, wrong_max in ((1, 0), (3, 1), (5, 2)):
        nodes = [_Node(f"n{number}") for number in range(count)]
        clocks = WallClocks(nodes)  # type: ignore[arg-type]
        for node in nodes * 2:
            clocks.jump(node, HOUR_MS)  # type: ignore[arg-type]
            wrong = [node for node in nodes if node.clock.wall_offset_ms != 7]
            assert len(wrong) <= wrong_max
            assert not wrong_max or node in wrong
        for node in nodes:
            clocks.set_right(node)  # type: ignore[arg-type]
        assert all(node.clock.wall_offset_ms == 7 for node in nodes)
