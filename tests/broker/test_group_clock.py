"""Group time: no minority of wrong clocks moves it, it never goes back, and never stands still."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.state.group_clock import ClockReading, GroupClock

WALL_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
STEP_MS = 200


class Group:
    """Replicas that ask each other once a second, over true time that begins at 0."""

    def __init__(self, count: int) -> None:
        self.now_ms = 0
        self.jumps_ms = [0] * count
        self.began_ms = [1_000_000 * number for number in range(count)]  # of monotonic clocks
        self.clocks = [GroupClock(count) for _ in range(count)]
        self.down: set[int] = set()
        self.leader = 0
        self.stamp_ms = 0
        self.link_ms = lambda: 0  # what a question or an answer takes

    def monotonic_ms(self, number: int) -> int:
        return self.began_ms[number] + self.now_ms

    def wall_ms(self, number: int) -> int:
        return WALL_MS + self.now_ms + self.jumps_ms[number]

    def pass_time(self, passed_ms: int) -> None:
        for _ in range(0, passed_ms, STEP_MS):
            self.now_ms += STEP_MS
            up = [number for number in range(len(self.clocks)) if number not in self.down]
            if self.now_ms % 1_000 == 0:
                for asking in up:
                    for asked in up:
                        if asked != asking:
                            self.ask(asking, asked)
                            self.tick(asking)
            for number in up:
                self.tick(number)

    def tick(self, number: int) -> None:
        self.clocks[number].tick(
            self.monotonic_ms(number),
            self.wall_ms(number),
            self.stamp_ms,
            leads=number == self.leader,
        )

    def ask(self, asking: int, asked: int) -> None:
        reading = self.clocks[asked].reading(
            self.monotonic_ms(asked), self.wall_ms(asked), self.stamp_ms
        )
        there_ms, back_ms = self.link_ms(), self.link_ms()
        group_ms = None if reading.group_ms is None else reading.group_ms - back_ms
        self.clocks[asking].heard(
            str(asked),
            ClockReading(wall_ms=reading.wall_ms - back_ms, group_ms=group_ms),
            queried_ms=self.monotonic_ms(asking) - there_ms - back_ms,
            monotonic_ms=self.monotonic_ms(asking),
            is_leader=asked == self.leader and asking != self.leader,
        )

    def restart(self, number: int) -> None:
        self.clocks[number] = GroupClock(len(self.clocks))
        self.began_ms[number] = -self.now_ms

    def store(self) -> int:
        """Stamp an entry; how far the stamp is ahead of the true time."""
        stamp_ms = self.clocks[self.leader].stamp_ms(self.monotonic_ms(self.leader), self.stamp_ms)
        assert stamp_ms >= self.stamp_ms
        self.stamp_ms = stamp_ms
        return stamp_ms - WALL_MS - self.now_ms


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS, 180_000, -2_000, 5_000])
@pytest.mark.parametrize("jumping", [0, 1])
def test_a_clock_that_jumps_moves_nothing(jump_ms, jumping):
    group = Group(3)
    group.pass_time(3_000)
    for change_ms in (jump_ms, -jump_ms):
        group.jumps_ms[jumping] += change_ms
        for leader in (0, 1, 2, jumping):
            group.leader = leader
            group.pass_time(70_000)
            assert abs(group.store()) <= STEP_MS


@pytest.mark.parametrize("slow", ["there", "back"])
def test_slow_answers_make_what_a_follower_knows_no_worse(slow):
    group = Group(3)
    group.pass_time(3_000)
    ways = itertools.cycle((900, 0) if slow == "there" else (0, 900))
    group.link_ms = lambda: next(ways)
    for leader in (1, 2, 0):
        group.pass_time(5_000)
        group.leader = leader
        assert abs(group.store()) <= 1


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("jump_ms", [4_600, -4_600])
def test_one_clock_is_right_again_as_another_jumps(jump_ms, is_down):
    """One is wrong at a time; the leader knows the first by its wrong answer for a while."""
    group = Group(3)
    group.pass_time(3_000)
    group.jumps_ms[1] = jump_ms
    group.pass_time(2_400)
    group.jumps_ms[1:] = [0, HOUR_MS if jump_ms > 0 else -HOUR_MS]
    if is_down:
        group.down.add(1)
    for _ in range(15):
        group.pass_time(1_000)
        assert abs(group.store()) <= 1


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_clocks_that_change_places_while_drift_is_corrected_move_nothing(sign, is_down):
    """What was asked for long enough is a few milliseconds; the seconds are new (seed 61999)."""
    group = Group(3)
    group.pass_time(3_000)
    drift_ms = sign * 4
    group.jumps_ms = [drift_ms, drift_ms, sign * 3_854]
    group.pass_time(2_400)
    assert 0 < sign * group.store() < 4  # it is being corrected
    group.jumps_ms = [sign * 4_984, drift_ms, drift_ms]
    if is_down:
        group.down.add(2)
    for _ in range(15):
        group.pass_time(1_000)
        assert abs(group.store()) <= 4


@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_asked_for_on_top_of_a_jump_has_to_last_a_minute_itself(sign):
    group = Group(3)
    group.pass_time(3_000)
    group.jumps_ms = [sign * 20_000] * 3
    group.pass_time(58_000)
    group.jumps_ms = [sign * HOUR_MS] * 3
    group.pass_time(10_000)
    ahead_ms = group.store()
    assert 20_000 - STEP_MS <= ahead_ms <= 20_000 if sign > 0 else -500 <= ahead_ms <= -300


def test_a_group_whose_replicas_all_restart_goes_by_what_most_clocks_say():
    for jump_ms in (HOUR_MS, -HOUR_MS):
        group = Group(3)
        group.pass_time(2_000)
        group.store()
        group.jumps_ms[0] = jump_ms
        group.now_ms += 10 * HOUR_MS  # nobody runs
        for number in range(3):
            group.restart(number)
        group.pass_time(2_000)
        assert abs(group.store()) <= STEP_MS


@pytest.mark.parametrize("jump_ms", [-3_000, 3_000])
@pytest.mark.parametrize("jumping", [0, 1, 2])
def test_a_group_begins_with_what_most_clocks_say_whoever_answers_first(jump_ms, jumping):
    group = Group(3)
    group.jumps_ms[jumping] = jump_ms
    group.pass_time(2_000)
    for leader in range(3):
        group.leader = leader
        assert group.store() == 0


def test_two_of_three_clocks_begin_once_they_have_agreed_twice():
    for apart_ms, is_sure in ((900, True), (1_100, False)):
        group = Group(3)
        group.down.add(2)
        group.jumps_ms[1] = -apart_ms
        group.pass_time(1_000)
        assert [clock.is_sure for clock in group.clocks[:2]] == [False] * 2
        group.pass_time(1_000)
        assert [clock.is_sure for clock in group.clocks[:2]] == [is_sure] * 2
        assert group.clocks[0].now_ms(group.monotonic_ms(0), 0) == group.wall_ms(1)


def test_a_replica_that_restarts_takes_the_groups_time_over_not_its_own_clocks():
    """Two of three are up, and one of their clocks is wrong: nobody could tell by the clocks."""
    group = Group(3)
    group.pass_time(2_000)
    group.store()
    group.down.add(2)
    group.jumps_ms[1] = -HOUR_MS
    group.restart(1)
    group.pass_time(2_000)
    group.leader = 1
    group.pass_time(60_000)
    assert abs(group.store()) <= STEP_MS


@pytest.mark.parametrize("jumping", [0, 1])
@pytest.mark.parametrize("down_ms", [0, 30_000])
def test_a_clock_behind_the_last_stamp_counts_for_nothing(jumping, down_ms):
    """All restart, one clock is behind, one replica is down: the stamp tells which one is right."""
    group = Group(3)
    group.pass_time(2_000)
    group.store()
    group.down.add(2)
    group.jumps_ms[jumping] = -HOUR_MS
    group.now_ms += down_ms
    for number in range(3):
        group.restart(number)
    stamp_ms, group.stamp_ms = group.stamp_ms, 0  # the log is applied once there is a leader
    group.pass_time(2_000)
    assert not group.clocks[0].is_sure
    group.stamp_ms = stamp_ms
    group.tick(0)
    assert group.clocks[0].is_checking, "the leader waits for answers, however long it has asked"
    group.pass_time(1_000)
    assert group.clocks[0].is_sure
    assert not group.clocks[0].is_checking
    assert abs(group.store()) <= 1
    group.down.clear()
    group.pass_time(70_000)
    assert abs(group.store()) <= 1


def test_more_clocks_behind_the_last_stamp_than_may_be_wrong_prove_the_stamp_wrong():
    group = Group(3)
    group.down.add(2)
    group.stamp_ms = WALL_MS + HOUR_MS
    group.pass_time(2_000)
    assert all(clock.is_sure for clock in group.clocks[:2])
    group.store()
    assert abs(group.clocks[0].lead_ms - HOUR_MS) <= 2_000


@given(seed=st.integers(0, 1 << 32))
def test_a_group_that_begins_while_clocks_change_places_begins_with_the_time(seed):
    """One of three is down, and one clock is wrong at a time, each for as long as it likes."""
    rng = random.Random(seed)
    group = Group(3)
    group.pass_time(2_000)
    group.store()
    group.now_ms += 20_000
    for number in range(3):
        group.restart(number)
    group.down.add(2)
    group.leader = rng.randrange(2)
    for _ in range(40):
        group.jumps_ms = [0, 0, 0]
        group.jumps_ms[rng.randrange(3)] = rng.choice([1, -1]) * HOUR_MS
        group.pass_time(rng.choice([STEP_MS, 600, 1_000, 3_000]))
        if group.clocks[group.leader].is_sure:
            assert abs(group.store()) <= 1


def test_time_goes_on_from_a_stamp_that_lies_ahead():
    """What an earlier release, or a majority of wrong clocks, has left in the log."""
    group = Group(3)
    group.stamp_ms = WALL_MS + HOUR_MS
    group.pass_time(1_000)
    before_ms = group.store()
    group.pass_time(60_000)
    after_ms = group.store()
    assert before_ms - HOUR_MS < 1_000
    assert before_ms - after_ms < 1_000
    group.pass_time(60_000)
    before_ms, after_ms = after_ms, group.store()
    assert 2_000 < before_ms - after_ms <= 3_100, "it is slowed down, and does not stand still"
    lead_ms = group.clocks[0].lead_ms
    assert abs(lead_ms - after_ms) <= STEP_MS


def test_what_most_clocks_have_said_for_a_minute_is_taken():
    group = Group(3)
    group.pass_time(2_000)
    group.jumps_ms = [HOUR_MS, HOUR_MS, 0]
    group.pass_time(50_000)
    assert group.store() < 5_000
    group.pass_time(20_000)
    assert abs(group.store() - HOUR_MS) <= 2 * STEP_MS


def test_a_group_of_one_goes_by_its_clock_once_that_has_stayed():
    group = Group(1)
    group.pass_time(STEP_MS)
    for jump_ms in (HOUR_MS, 0, -HOUR_MS, 0):
        group.jumps_ms = [jump_ms]
        group.pass_time(55_000)
        assert group.store() == 0
    group.jumps_ms = [HOUR_MS]
    group.pass_time(65_000)
    assert abs(group.store() - HOUR_MS) <= STEP_MS


def test_answers_that_took_long_or_are_old_say_nothing():
    clock = GroupClock(3)
    late = ClockReading(wall_ms=WALL_MS, group_ms=WALL_MS)
    clock.heard("n1", late, queried_ms=0, monotonic_ms=1_001, is_leader=True)
    assert not clock.is_sure
    told = ClockReading(wall_ms=WALL_MS, group_ms=None)
    clock.heard("n1", told, queried_ms=2_000, monotonic_ms=2_000, is_leader=True)
    clock.tick(12_001, WALL_MS, 0, leads=False)
    assert not clock.is_sure


@pytest.mark.parametrize("wrong_ms", [3_000, HOUR_MS])
def test_a_link_that_is_slow_in_one_direction_moves_no_clock_ahead(wrong_ms):
    """Half a second later or earlier than in the middle of what an answer took."""
    clock = GroupClock(3)
    for now_ms in (1_000, 2_000):
        for replica, ahead_ms in (("n1", wrong_ms), ("n2", now_ms)):
            told = ClockReading(wall_ms=WALL_MS + ahead_ms, group_ms=None)
            clock.heard(
                replica, told, queried_ms=now_ms - 1_000, monotonic_ms=now_ms, is_leader=False
            )
        clock.tick(now_ms, WALL_MS + now_ms, 0, leads=True)
    assert clock.is_sure
    assert clock.stamp_ms(2_000, 0) == WALL_MS + 2_000


@given(seed=st.integers(0, 1 << 32), count=st.sampled_from([2, 3, 4, 5]))
def test_over_slow_links_no_stamp_is_ahead(seed, count):
    rng = random.Random(seed)
    group = Group(count)
    group.link_ms = lambda: rng.choice([0, 1, 20, 480])
    wrong = rng.sample(range(count), (count - 1) // 2)
    for number in wrong:
        group.jumps_ms[number] = rng.choice([1, -1]) * rng.choice([3_000, HOUR_MS])
    for _ in range(20):
        group.pass_time(rng.choice([1_000, 5_000]))
        if rng.random() < 0.5:
            group.restart(rng.randrange(count))
            group.pass_time(2_000)
        group.leader = rng.randrange(count)
        assert -20 * 480 <= group.store() <= STEP_MS


@given(seed=st.integers(0, 1 << 32), count=st.sampled_from([1, 2, 3, 4, 5]))
def test_no_minority_of_clocks_moves_group_time(seed, count):
    """Whatever jumps, restarts and leads: a stamp is the true time, less what answers took."""
    rng = random.Random(seed)
    group = Group(count)
    group.pass_time(2_000)
    wrong_max = (count - 1) // 2
    for _ in range(30):
        wrong = rng.sample(range(count), rng.randint(0, wrong_max))
        group.jumps_ms = [0] * count
        for number in wrong:
            group.jumps_ms[number] = rng.choice([1, -1]) * rng.choice([3_000, 180_000, HOUR_MS])
        down_max = wrong_max - len(wrong)
        group.down = set(rng.sample(range(count), rng.randint(0, down_max)))
        if count > 1 and rng.random() < 0.3:
            group.restart(rng.randrange(count))
            group.pass_time(2_000)
        group.leader = rng.choice([at for at in range(count) if at not in group.down])
        group.pass_time(rng.choice([1_000, 5_000, 20_000]))
        assert -2 * STEP_MS <= group.store() <= STEP_MS
