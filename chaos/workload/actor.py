"""A process of the history: it runs one operation at a time and is retired after an unknown
outcome.

Place in the data path: every part of the workload records through an Actor, which gives its rows
process, client and client group, and keeps the rules of the run format.

Invariants: no second operation begins before the first has completed; after an `info` the actor
goes on under another name, since its last operation may still take effect.

Source: the run format (ops: process); Jepsen's processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chaos.recording.history import Column, HistoryWriter, Outcome
from client.errors import ClientError

__all__ = ["Actor", "Operation", "error_text", "outcome_of"]

ERROR_TEXT_MAX = 300


class Operation:
    """One pending operation. Completed exactly once; see `Actor.operation`."""

    def __init__(self, actor: Actor, handle: int) -> None:
        self._actor = actor
        self._handle = handle
        self.done = False

    def complete(self, outcome: Outcome, **columns: Column) -> None:
        assert not self.done
        self.done = True
        self._actor.history.complete(self._handle, outcome, **columns)
        self._actor.completed(outcome)

    def failed(self, error: ClientError, **columns: Column) -> None:
        """Complete with the outcome that the error itself names."""
        self.complete(outcome_of(error), error=error_text(error), **columns)


class Actor:
    """One process. `root` is unique in the run; `client` is the client instance that it uses."""

    def __init__(
        self, history: HistoryWriter, *, root: str, client: str, client_group: str
    ) -> None:
        self.history = history
        self._root = root
        self._client = client
        self._client_group = client_group
        self._retired = 0
        self._busy = False

    def other(self, name: str) -> Actor:
        """Return another process of the same client, for what is done beside. `name` is unique in
        this process's."""
        return Actor(
            self.history,
            root=f"{self.name}.{name}",
            client=self._client,
            client_group=self._client_group,
        )

    @property
    def name(self) -> str:
        return self._root if self._retired == 0 else f"{self._root}~{self._retired}"

    @contextmanager
    def operation(self, f: str, **columns: Column) -> Iterator[Operation]:
        """Invoke an operation, which the body of the context completes.

        A body that leaves without completing it (it was cancelled, or its client was crashed) makes
        it `info`: it may have been done.
        """
        assert not self._busy, f"process {self.name} does one thing at a time"
        self._busy = True
        handle = self.history.invoke(
            f, process=self.name, client=self._client, client_group=self._client_group, **columns
        )
        operation = Operation(self, handle)
        try:
            yield operation
        finally:
            if not operation.done:
                operation.complete("info", error="the process was stopped in the middle of it")

    def completed(self, outcome: Outcome) -> None:
        assert self._busy
        self._busy = False
        if outcome == "info":
            self._retired += 1


def outcome_of(error: ClientError) -> Outcome:
    """Return `fail` for a definite rejection; everything else is unknown."""
    return "fail" if error.definite else "info"


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_TEXT_MAX]
