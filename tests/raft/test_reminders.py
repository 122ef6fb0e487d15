"""What lasts is told at once, and then ever more rarely."""

from __future__ import annotations

import itertools

from raft.repair.reminders import Reminders


def test_what_lasts_is_told_ever_more_rarely_but_never_forgotten() -> None:
    reminders = Reminders()
    told = [now_ms for now_ms in range(0, 600_000, 1_000) if reminders.due("damage", "x", now_ms)]
    assert told[:6] == [0, 2_000, 6_000, 14_000, 30_000, 62_000]
    late = itertools.pairwise(told[5:])
    assert {later - earlier for earlier, later in late} == {60_000}


def test_what_changes_is_told_at_once_and_often_at_first() -> None:
    reminders = Reminders()
    for now_ms in (0, 2_000, 6_000):
        assert reminders.due("damage", "one peer", now_ms)
    assert not reminders.due("damage", "one peer", 6_001)
    assert reminders.due("damage", "two peers", 6_002)
    assert not reminders.due("damage", "two peers", 8_001)
    assert reminders.due("damage", "two peers", 8_002)


def test_subjects_are_apart_and_news_once_they_come_back() -> None:
    reminders = Reminders()
    assert reminders.due("one", "x", 0)
    assert reminders.due("other", "x", 0)
    reminders.retain(["other"])
    assert reminders.due("one", "x", 1)
    assert not reminders.due("other", "x", 1)
