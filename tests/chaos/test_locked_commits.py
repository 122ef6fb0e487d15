"""Commits of an orderly member, held against the locks that brokers granted it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.recording.history import HistoryWriter
from chaos.workload.actor import Actor
from chaos.workload.parts.locked_commits import LockedCommits
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
    return [op["status"] for op in ops_of(tmp_path / "h") if op["f"] == "ask"]


def test_a_commit_is_right_only_while_its_lock_lasts(answers: list[str]) -> None:
    """By the order in which they were made; all ask rows have the time at which they were."""
    assert sorted(answers) == ["False"] * 5 + ["True"] * 2
    assert answers == ["False", "True", "False", "False", "True", "False", "False"]
