"""A history in which clients of a namespace record their operations under the names of the wire.

Place in the data path: what a part of the workload records where its clients are in a namespace;
all goes on into the run's history.

Invariant: applications' names of topics and groups come in, the brokers' go out: a name that the
client showed with its namespace left on, or of another one, is recorded as it is, and is in no log.
A `WireName` is a part's own work, not the client's: it goes out as it came.

Source: RocketMQ NamespaceUtil.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

from chaos.recording.history import Column, HistoryWriter, MessageRow, Outcome, QueueRow
from chaos.workload.namespaces import WireName, wire_name
from remoting.protocol.group_topics import DLQ_PREFIX

__all__ = ["NamespacedHistory"]


class NamespacedHistory(HistoryWriter):
    """Passes operations on to `history`, whose owner closes it."""

    def __init__(self, history: HistoryWriter, namespace: str) -> None:
        self._history = history
        self._namespace = namespace
        self.counts = history.counts

    def now_ns(self) -> int:
        return self._history.now_ns()

    def invoke(self, f: str, **columns: Column) -> int:
        return self._history.invoke(f, **self._on_the_wire(columns))

    def complete(self, handle: int, outcome: Outcome, **columns: Column) -> None:
        self._history.complete(handle, outcome, **self._on_the_wire(columns))

    def record(
        self, f: str, outcome: Outcome, *, t_invoke: int, t_complete: int, **columns: Column
    ) -> None:
        self._history.record(
            f, outcome, t_invoke=t_invoke, t_complete=t_complete, **self._on_the_wire(columns)
        )

    def close(self) -> None:
        """Leave the history open."""

    def _on_the_wire(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        wire = dict(columns)
        for name in ("topic", "client_group"):
            text = wire.get(name)
            if isinstance(text, str):
                wire[name] = self._wrap(text)
        for name, value in columns.items():
            if isinstance(value, (list, tuple)):
                rows = [self._row(item) for item in value]
                wire[name] = cast("Sequence[MessageRow]", rows)  # or all of them are queues
        return wire

    def _row(self, item: MessageRow | QueueRow) -> MessageRow | QueueRow:
        if item.topic is None:
            return item
        topic = str(item.topic) if isinstance(item.topic, WireName) else self._wrap(item.topic)
        # A dead letter tells its origin by a property, in which brokers write their own name.
        if isinstance(item, QueueRow) or item.origin is None or topic.startswith(DLQ_PREFIX):
            return dataclasses.replace(item, topic=topic)
        return dataclasses.replace(item, topic=topic, origin=self._wrap(item.origin))

    def _wrap(self, name: str) -> str:
        return wire_name(self._namespace, name)
