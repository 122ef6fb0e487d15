"""What retention may take: RocketMQ's rules, and what it never touches."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from broker.config.retention import RetentionFacts, RetentionPolicy, decide_retention
from broker.state.time_marks import TimeMarks
from raft.replicated_log import RetentionBounds

SEGMENT = 100
POLICY = RetentionPolicy(segment_size_bytes_max=SEGMENT)
BOUNDS = RetentionBounds(begin_position=1_000, end_position=9_000, follower_position=None)
FACTS = RetentionFacts(
    hour=12,
    disk_used_percent=10.0,
    bounds=BOUNDS,
    expired_position=5_000,
    half_position=None,
    delay_position=None,
)


def position(policy: RetentionPolicy = POLICY, **changed: object) -> int | None:
    decided = decide_retention(policy, replace(FACTS, **changed))
    return None if decided is None else decided.position


def test_what_is_old_goes_at_its_hour_or_when_the_disk_is_used():
    assert position() is None
    assert position(hour=4) == 5_000
    assert position(disk_used_percent=75.0) is None, "above 75 %, not at it"
    assert position(disk_used_percent=75.1) == 5_000
    assert position(hour=4, expired_position=0) is None
    assert position(replace(POLICY, delete_hours=frozenset({12, 20}))) == 5_000


def test_the_oldest_goes_by_force_whatever_its_age():
    assert position(disk_used_percent=86.0, expired_position=0) == 1_000 + 10 * SEGMENT
    assert position(disk_used_percent=86.0) == 5_000, "what is old is more"
    never = replace(POLICY, clean_file_forcibly_enable=False)
    assert position(never, disk_used_percent=99.0, expired_position=0) is None


def test_a_log_of_bounded_size_loses_its_beginning_at_any_hour():
    sized = replace(POLICY, log_size_bytes_max=3_000)
    assert position(sized) == 6_000
    assert position(sized, bounds=replace(BOUNDS, end_position=4_000)) is None


def test_nothing_that_is_needed_goes():
    sized = replace(POLICY, log_size_bytes_max=1)
    assert position(sized) == 8_999
    assert position(sized, half_position=3_000) == 3_000
    assert position(sized, delay_position=2_000, half_position=3_000) == 2_000
    slow = replace(BOUNDS, follower_position=1_500)
    assert position(sized, bounds=slow) == 1_500
    assert position(sized, bounds=slow, disk_used_percent=90.0) == 8_999, "the disk forces it"
    assert position(sized, half_position=500) is None


@given(
    st.builds(
        RetentionFacts,
        hour=st.integers(0, 23),
        disk_used_percent=st.floats(0, 100),
        bounds=st.builds(
            RetentionBounds,
            begin_position=st.integers(0, 500),
            end_position=st.integers(500, 9_000),
            follower_position=st.none() | st.integers(0, 9_000),
        ),
        expired_position=st.integers(0, 9_000),
        half_position=st.none() | st.integers(0, 9_000),
        delay_position=st.none() | st.integers(0, 9_000),
    ),
    st.builds(RetentionPolicy, log_size_bytes_max=st.integers(0, 9_000)),
)
def test_a_decision_is_within_its_limits(facts, policy):
    decided = decide_retention(policy, facts)
    if decided is None:
        return
    assert decided.reason
    assert decided.position > facts.bounds.begin_position
    assert decided.position <= facts.bounds.end_position
    for limit in (facts.half_position, facts.delay_position):
        assert limit is None or decided.position <= limit
    if facts.disk_used_percent <= policy.disk_space_clean_forcibly_ratio:
        follower = facts.bounds.follower_position
        assert follower is None or decided.position <= follower


@given(
    st.lists(st.tuples(st.integers(1, 200_000), st.integers(1, 1_000)), max_size=60),
    st.integers(0, 12_000_000),
)
def test_marks_never_call_young_what_is_not(steps, asked_ms):
    marks = TimeMarks()
    entries, now_ms, at, before_ms = [], 0, 0, 0
    for wait_ms, size in steps:
        now_ms += wait_ms
        marks.note(at, now_ms, before_ms=before_ms)
        before_ms = now_ms
        entries.append((at, now_ms))
        at += size
    begin = marks.position_before(asked_ms)
    assert all(stored_ms < asked_ms for position, stored_ms in entries if position < begin)
    for position, stored_ms in entries:
        shown_ms = marks.time_at(position)
        assert 0 <= (now_ms if shown_ms is None else shown_ms) - stored_ms < 120_000
    kept = [ms for position, ms in entries if position >= begin and ms < asked_ms]
    assert not kept[1:] or kept[-2] - kept[0] < 120_000, "and what is old, within two minutes"


def test_marks_are_bounded_and_stay_right():
    marks = TimeMarks()
    end = 100_000
    for minute in range(1, end):
        marks.note(minute * 10, minute * 60_000, before_ms=(minute - 1) * 60_000)
    assert len(marks) <= 8_192
    for age in (10, 100, 1_000, 4_320, 30_000, 90_000):
        before = marks.position_before((end - age) * 60_000) // 10
        assert before <= end - age, "never what is younger"
        assert before >= end - age - 1 - age // 100, "coarser by the age"
