"""What clients asked of the log and were told of it, for every request that leaves a command there.

Place in the data path: client programs note here what they ask and how it ended; `committed_log`
notes each command that it applies. An effect is a command's kind with the fields that tell it from
others.

Rules: what was answered as done stands in the log when it is answered, more often than
before it was asked (G1, G4, G5: an answer follows the commit of its entry); what was surely not
done, however often it was tried, never stands there (G7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from chaos.sim.machine.violation import Violation
from client.errors import ClientError

__all__ = ["Asked", "Effect", "Question"]

Effect: TypeAlias = tuple[Hashable, ...]


@dataclass(slots=True)
class Question:
    """One request, its retries included. Whoever asks says when it was answered as done."""

    effect: Effect
    count_before: int
    is_told: bool = False


class Asked:
    """Of one broker group. Methods raise Violation."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._done: Counter[Effect] = Counter()
        self._refused: set[Effect] = set()  # surely not done, at least once
        self._perhaps: set[Effect] = set()  # done, or nobody knows
        self._open: Counter[Effect] = Counter()  # asked, and not ended

    def note(self, *effect: Hashable) -> None:
        """The log has it, once more."""
        self._done[effect] += 1

    @contextmanager
    def question(self, *effect: Hashable) -> Iterator[Question]:
        """Ask for it within. How it ended is judged by `is_told`, and by the error that leaves;
        where the client dies in between nobody knows."""
        question = Question(effect, self._done[effect])
        is_definite = False
        # A dead client's coroutine ends as late as the seed does, so nothing may wait for its end.
        self._open[effect] += 1
        try:
            yield question
        except ClientError as error:
            is_definite = error.definite
            raise
        finally:
            self._open[effect] -= 1
            if is_definite:
                self._counts["requests_refused"] += 1
                self._refused.add(effect)
            else:
                self._perhaps.add(effect)
        if question.is_told:
            self._counts["requests_told"] += 1
            if self._done[effect] <= question.count_before:
                raise Violation("told", f"{effect} is answered as done, the log has it not")

    def overtaken(self, *effect: Hashable) -> None:
        """Its own asker was told meanwhile that it is not done: so it never may be."""
        self._perhaps.discard(effect)
        self._refused.add(effect)

    def check_final(self) -> None:
        """When all nodes have applied the whole log."""
        for effect in sorted(self._refused - self._perhaps, key=repr):
            if self._done[effect] and not self._open[effect]:
                raise Violation("G7", f"{effect} was surely refused, and is in the log")
