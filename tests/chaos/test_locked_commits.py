"""Commits and releases of an orderly member, held against the locks that brokers granted it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.recording.history import HistoryWriter
from chaos.workload.actor import Actor
from chaos.workload.parts.common.lock_model import MemberLocks
from chaos.workload.parts.consumers.locked_commits import LockedCommits
from client.errors import UnansweredError
from client.message import MessageQueue
from tests.chaos.histories import ops_of

QUEUE = MessageQueue("T", "broker-a", 1)
MS = 1_000_000
HELD_MS = 600


class _Member:
    """A member, by times in ms."""

    def __init__(self, history: HistoryWriter) -> None:
        actor = Actor(history, root="m", client="m", client_group="g")
        self.observer = LockedCommits(history, actor, group="g", client="m", held_ms=HELD_MS)

    def lock(self, at_ms: int, *, granted: bool = True, answered: bool = True) -> None:
        self.observer.locks_requested(
            [QUEUE],
            [QUEUE] if granted else [],
            None if answered else UnansweredError("nobody answers"),
            t_invoke=at_ms * MS,
            t_complete=(at_ms + 1) * MS,
        )

    def unlock(self, at_ms: int) -> None:
        self.observer.locks_released([QUEUE], None, t_invoke=at_ms * MS, t_complete=at_ms * MS)

    def commit(self, at_ms: int) -> None:
        self.observer.committed(QUEUE, 7, None, t_invoke=at_ms * MS, t_complete=(at_ms + 1) * MS)


@pytest.fixture
def answers(tmp_path: Path) -> list[str]:
    with HistoryWriter(tmp_path / "h", started_ns=0) as history:
        member = _Member(history)
        member.commit(0)  # it has no lock
        member.lock(1)
        member.commit(600)
        member.commit(602)  # the lock is over
        member.lock(603, answered=False)
        member.commit(604)  # of which it does not know that it was renewed
        member.lock(700)
        member.commit(699)  # on its way when it was: nobody looks back
        member.commit(701)
        member.lock(800, granted=False)
        member.commit(801)  # it was refused
        member.lock(900)
        member.unlock(901)
        member.commit(902)  # it was given back
    asked = [op for op in ops_of(tmp_path / "h") if op["f"] == "ask"]
    return [op["status"] for op in asked if "commit" in op["key"]]


def test_a_commit_is_right_only_while_its_lock_lasts(answers: list[str]) -> None:
    """By the order in which they were made; all ask rows have the time at which they were."""
    assert sorted(answers) == ["False"] * 5 + ["True"] * 2
    assert answers == ["False", "True", "False", "False", "True", "False", "False"]


def test_what_is_given_back_was_got_since_it_was_given_back_before(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h", started_ns=0) as history:
        member = _Member(history)
        member.unlock(0)  # it never had it
        member.lock(1)
        member.lock(3)
        member.unlock(5)
        member.lock(4)  # a renewal whose answer comes late
        member.unlock(6)
        member.lock(7)
        member.unlock(8)
    asked = [op["status"] for op in ops_of(tmp_path / "h") if op["f"] == "ask"]
    assert asked == [str(QUEUE), "none", str(QUEUE), "none"]


def test_an_answer_to_what_was_asked_before_a_release_says_nothing() -> None:
    locks = MemberLocks(held_ms=HELD_MS)
    locks.answered([QUEUE], [QUEUE], t_invoke=1 * MS)
    assert locks.is_held(QUEUE, 2 * MS)
    assert locks.released([QUEUE], t_invoke=5 * MS) == []
    locks.answered([QUEUE], [QUEUE], t_invoke=4 * MS)
    assert not locks.is_held(QUEUE, 6 * MS)
    locks.answered([QUEUE], [QUEUE], t_invoke=7 * MS)
    locks.answered([QUEUE], [], t_invoke=4 * MS)  # a refusal of then
    assert locks.is_held(QUEUE, 8 * MS)
    assert not locks.is_held(QUEUE, (8 + HELD_MS) * MS)


def test_a_lock_that_is_got_while_its_release_is_on_its_way_stays() -> None:
    locks = MemberLocks(held_ms=HELD_MS)
    locks.answered([QUEUE], [QUEUE], t_invoke=1 * MS)
    locks.answered([QUEUE], [QUEUE], t_invoke=6 * MS)
    assert locks.released([QUEUE], t_invoke=5 * MS) == []
    assert locks.since_ns(QUEUE) == 6 * MS
    assert locks.released([QUEUE], t_invoke=9 * MS) == []
    assert locks.released([QUEUE], t_invoke=10 * MS) == [QUEUE]


def test_a_lock_that_was_asked_for_without_an_answer_may_be_given_back() -> None:
    locks = MemberLocks(held_ms=HELD_MS)
    locks.unanswered([QUEUE], t_invoke=1 * MS)
    assert not locks.is_held(QUEUE, 2 * MS)
    assert locks.released([QUEUE], t_invoke=2 * MS) == []
    assert locks.released([QUEUE], t_invoke=3 * MS) == [QUEUE]
