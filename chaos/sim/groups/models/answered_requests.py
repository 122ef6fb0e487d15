"""Requests of clients and their answers, for every request that leaves a command in the log.

Place in the data path: client programs record here what they request and how it ended; `log_model`
records each command that it applies. An effect is a command's kind with the fields that tell it
from others.

Rules: when a request is answered as done, its effect is in the log more often than before it was
sent (G1, G4, G5: an answer follows the commit of its entry); an effect whose every attempt failed
definitely is never in the log (G7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from chaos.sim.machine.violation import Violation
from client.errors import ClientError

__all__ = ["AnsweredRequests", "Effect", "OpenRequest"]

Effect: TypeAlias = tuple[Hashable, ...]


@dataclass(slots=True)
class OpenRequest:
    """One request, its retries included. The caller sets `is_done` when it was answered as done."""

    effect: Effect
    count_before: int
    is_done: bool = False


class AnsweredRequests:
    """All requests to one broker group. Methods raise Violation."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._done: Counter[Effect] = Counter()
        self._refused: set[Effect] = set()  # failed definitely, at least once
        self._perhaps: set[Effect] = set()  # done, or of unknown outcome
        self._open: Counter[Effect] = Counter()  # sent, and not ended

    def note(self, *effect: Hashable) -> None:
        """Record that the log has the effect once more."""
        self._done[effect] += 1

    @contextmanager
    def request(self, *effect: Hashable) -> Iterator[OpenRequest]:
        """Send the request within this context.

        `is_done` and the error that leaves decide how it ended; if the client dies meanwhile the
        outcome is unknown.
        """
        request = OpenRequest(effect, self._done[effect])
        is_definite = False
        # A dead client's coroutine ends only with the seed, so nothing may wait for its end.
        self._open[effect] += 1
        try:
            yield request
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
        if request.is_done:
            self._counts["requests_told"] += 1
            if self._done[effect] <= request.count_before:
                raise Violation("answered", f"{effect} is answered as done, the log has it not")

    def overtaken(self, *effect: Hashable) -> None:
        """Record that the client saw its request not done: it must never be done later."""
        self._perhaps.discard(effect)
        self._refused.add(effect)

    def check_final(self) -> None:
        """Check the refused effects when all nodes have applied the whole log."""
        for effect in sorted(self._refused - self._perhaps, key=repr):
            if self._done[effect] and not self._open[effect]:
                raise Violation("G7", f"{effect} was surely refused, and is in the log")
