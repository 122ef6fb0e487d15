"""The queues and permissions of topics, by the committed log.

Place in the data path: `log_model` hands it the commands that create, change and delete topics;
`shape_clients` queries what was in force while a request was under way, `replicas` compares it with
every broker. It does not read the broker's table.

Rules: a change that was answered as done is in force at the answer, or was since the previous
acknowledged change (a late request may have changed it again). What no shape allows that was in
force from the answer on, the leader rejects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.entry.payload import TopicCommand
from chaos.sim.machine.violation import Violation

__all__ = ["Shape", "ShapeModel"]


class Shape(NamedTuple):
    """Number of read queues, number of write queues, and RocketMQ's permission bits."""

    read: int
    write: int
    perm: int


class ShapeModel:
    """The shapes of one broker group's topics. Methods raise Violation."""

    def __init__(self) -> None:
        self._history: dict[str, list[Shape | None]] = {}  # None: deleted

    def on_made(self, command: TopicCommand) -> None:
        """Record that a topic was created or changed."""
        shape = Shape(command.read_queue_count, command.write_queue_count, command.perm)
        self._history.setdefault(command.name, []).append(shape)

    def on_deleted(self, topic: str) -> None:
        self._history.setdefault(topic, []).append(None)

    def current(self) -> dict[str, Shape]:
        """Return the shapes of the topics that exist."""
        lasts = {topic: shapes[-1] for topic, shapes in self._history.items()}
        return {topic: shape for topic, shape in lasts.items() if shape is not None}

    def on_answered(self, topic: str, shape: Shape, since: int) -> int:
        """Check a change that was answered as done; return its number, not below `since`."""
        shapes = self._history.get(topic, [])
        for number in range(len(shapes) - 1, since - 1, -1):
            if shapes[number] == shape:
                return number
        raise Violation(
            "answered", f"{topic}: {shape} is answered as done, in force since are {shapes[since:]}"
        )

    def since(self, topic: str, number: int) -> Sequence[Shape | None]:
        """Return the shapes in force from change `number` until now."""
        return self._history.get(topic, [])[number:]
