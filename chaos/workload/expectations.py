"""Answers beside what a model expects of them: the operation `ask` of the run format.

Place in the data path: parts of the workload that use a feature of the client, or ask a broker, and
know by a small model of their own what has to come, record both here; rule M12 compares them.

Invariants: `expected` is computed without the code under test; what may rightly be otherwise, for a
fault or another client, is expected as None, which nobody judges.

Source: the run format (ask).
"""

from __future__ import annotations

import itertools
import time
from typing import Final

from chaos.recording.history import HistoryWriter
from client.message import MessageQueue

__all__ = ["CALM", "Expectations"]

CALM: Final = "calm"

TEXT_MAX: Final = 600


class Expectations:
    """Records the expectations of one client, each as an operation of a process of its own."""

    def __init__(self, history: HistoryWriter, *, client: str, client_group: str) -> None:
        self._history = history
        self._client = client
        self._client_group = client_group
        self._numbers = itertools.count()

    def hold(
        self,
        question: str,
        *,
        expected: object,
        answered: object,
        topic: str | None = None,
        queue: MessageQueue | None = None,
        calm_since: int | None = None,
    ) -> None:
        """Record one answer; `expected` None: nobody can know. Both are recorded as text.

        `calm_since`, of CLOCK_MONOTONIC in nanoseconds: it is judged only where there was no fault
        from then until now.
        """
        now = time.monotonic_ns()
        self._history.record(
            "ask",
            "ok",
            t_invoke=now if calm_since is None else calm_since,
            t_complete=now,
            process=f"{self._client}.ask-{next(self._numbers)}",
            client=self._client,
            client_group=self._client_group,
            broker_group=None if queue is None else queue.broker_name,
            topic=topic if queue is None else queue.topic,
            queue=None if queue is None else queue.queue_id,
            key=question,
            decision=None if calm_since is None else CALM,
            ref=None if expected is None else str(expected)[:TEXT_MAX],
            status=str(answered)[:TEXT_MAX],
        )
