"""How many queues topics have and what may be done with them, as the committed log tells of it.

Place in the data path: `committed_log` hands it the commands that make, change and delete topics;
`shape_clients` asks it what was in force while a request was under way, `replicas` compares it with
every broker. Knows nothing of the broker's table.

Rules: what was answered as done is in force when it is answered, or was since the one before it was
(somebody's late request may have changed it again). What no shape allows that was in force from the
answer on, the leader refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.entry.payload import TopicCommand
from chaos.sim.machine.violation import Violation

__all__ = ["Shape", "ShapeModel"]


class Shape(NamedTuple):
    """Queues that are read, queues that are written, and RocketMQ's bits of permission."""

    read: int
    write: int
    perm: int


class ShapeModel:
    """Of one broker group. Methods raise Violation."""

    def __init__(self) -> None:
        self._history: dict[str, list[Shape | None]] = {}  # None: deleted

    def on_made(self, command: TopicCommand) -> None:
        """Made, or changed."""
        shape = Shape(command.read_queue_count, command.write_queue_count, command.perm)
        self._history.setdefault(command.name, []).append(shape)

    def on_deleted(self, topic: str) -> None:
        self._history.setdefault(topic, []).append(None)

    def current(self) -> dict[str, Shape]:
        """Of the topics that there are."""
        lasts = {topic: shapes[-1] for topic, shapes in self._history.items()}
        return {topic: shape for topic, shape in lasts.items() if shape is not None}

    def on_told(self, topic: str, shape: Shape, since: int) -> int:
        """A change was answered as done; the one told before is number `since`. Which one it is."""
        shapes = self._history.get(topic, [])
        for number in range(len(shapes) - 1, since - 1, -1):
            if shapes[number] == shape:
                return number
        raise Violation(
            "told", f"{topic}: {shape} is answered as done, in force since are {shapes[since:]}"
        )

    def since(self, topic: str, number: int) -> Sequence[Shape | None]:
        """What was in force from change `number` on until now."""
        return self._history.get(topic, [])[number:]
