"""Records an operator's changes of settings, and what answers say of them afterwards.

Place in the data path: the parts whose requests change what a cluster is configured to do
(`operator`, `deletions`, `accounts`) name each setting and its value as text; rule M14 compares
each `get` with the `set` before it.

Invariants: a setting has one writer; one request that changes several settings is an operation for
each, all begun before it is sent and completed with its outcome.

Source: the run format (set, get; M14).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from chaos.recording.history import Outcome
from chaos.workload.actor import Actor, Operation, error_text, outcome_of
from chaos.workload.context import WorkContext
from client.errors import ClientError

__all__ = ["ABSENT", "NOW", "NotSureError", "SettingsRecord"]

ABSENT: Final = "-"  # the value of a setting that is not there
NOW: Final = "now"  # the answer is linearizable, so it is compared whatever faults there are


class NotSureError(Exception):
    """An answer that may not be compared; the text says why."""


class SettingsRecord:
    """The process that changes settings and queries them. `root`, `client`: as of an `Actor`."""

    def __init__(self, context: WorkContext, *, root: str, client: str, client_group: str) -> None:
        self._context = context
        self._root = root
        self._client = client
        self._client_group = client_group
        self._actors: list[Actor] = []

    async def change(
        self,
        values: Mapping[str, str],
        send: Callable[[], Awaitable[str]],
        *,
        how: str,
        broker_group: str | None = None,
    ) -> Outcome:
        """Send a request that gives settings these values; return its outcome.

        `send` returns who carried it out: a broker's address or a name server's name.
        """
        with contextlib.ExitStack() as stack:
            operations = [
                stack.enter_context(
                    actor.operation(
                        "set", broker_group=broker_group, key=key, status=value, ref=how
                    )
                )
                for actor, (key, value) in zip(
                    self._actors_for(len(values)), values.items(), strict=True
                )
            ]
            try:
                node = await send()
            except ClientError as error:
                return _completed(operations, outcome_of(error), error=error_text(error))
            return _completed(operations, "ok", node=self._context.node(node) or node)

    async def query(
        self,
        keys: Sequence[str],
        send: Callable[[], Awaitable[tuple[Mapping[str, str], str]]],
        *,
        how: str,
        broker_group: str | None = None,
        when: str | None = None,
    ) -> Mapping[str, str]:
        """Query settings; return the values that the answer shows, none where none came.

        `send` returns the values by key, where a setting that is missing is not there, and who
        answered. With `when` NOW the answer is linearizable.
        """
        with contextlib.ExitStack() as stack:
            operations = [
                stack.enter_context(
                    actor.operation(
                        "get", broker_group=broker_group, key=key, ref=how, decision=when
                    )
                )
                for actor, key in zip(self._actors_for(len(keys)), keys, strict=True)
            ]
            try:
                values, node = await send()
            except ClientError as error:
                _completed(operations, outcome_of(error), error=error_text(error))
                return {}
            except NotSureError as error:
                _completed(operations, "info", error=error_text(error))
                return {}
            shown = {key: values.get(key, ABSENT) for key in keys}
            for operation, value in zip(operations, shown.values(), strict=True):
                operation.complete("ok", status=value, node=self._context.node(node) or node)
            return shown

    def _actors_for(self, count: int) -> list[Actor]:
        while len(self._actors) < count:
            self._actors.append(
                Actor(
                    self._context.history,
                    root=f"{self._root}.{len(self._actors)}",
                    client=self._client,
                    client_group=self._client_group,
                )
            )
        return self._actors[:count]


def _completed(operations: Sequence[Operation], outcome: Outcome, **columns: str) -> Outcome:
    for operation in operations:
        operation.complete(outcome, **columns)
    return outcome
