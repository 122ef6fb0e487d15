"""What waits elsewhere for a topic that is deleted meanwhile, as the committed log tells of it.

Place in the data path: `committed_log` hands it every message that begins to wait (a half, a
delayed message, one with a time of its own), every one that becomes visible, and the deletions;
`promises` asks it about what was acknowledged. Knows nothing of the broker's places.

Rules: what began to wait before its topic was deleted never becomes visible in the next topic of
that name, whatever it waited for, and however often it was taken up again. In the entry of the
deletion itself its messages come first.
"""

from __future__ import annotations

from chaos.sim.groups.models.stored import Stored
from chaos.sim.machine.violation import Violation
from raft.messages import Index

__all__ = ["DeletionModel"]


class DeletionModel:
    """Of one broker group. Methods raise Violation."""

    def __init__(self) -> None:
        self._deleted_at: dict[str, Index] = {}  # by topic: the last time
        self._waits: dict[str, Stored] = {}  # by value: where it began to wait first

    def on_deleted(self, topic: str, index: Index) -> None:
        self._deleted_at[topic] = index

    def on_waiting(self, stored: Stored) -> None:
        """A half, or a message that shall be delivered later."""
        self._waits.setdefault(stored.value, stored)

    def on_visible(self, stored: Stored) -> None:
        """Some message is stored where consumers read it."""
        waited = self._waits.get(stored.value)
        if waited is not None and self.took(waited):
            raise Violation(
                "deletions",
                f"{stored.value} waited at {waited.place}, {waited.real_topic} was deleted since, "
                f"and it is stored at {stored.place}",
            )

    def took(self, stored: Stored) -> bool:
        """Whether what waits there was sent to a topic that is gone."""
        return stored.index <= self._deleted_at.get(stored.real_topic, 0)

    def has_taken(self, value: str) -> bool:
        """Whether the message waited when its topic was deleted, or was delivered before that."""
        waited = self._waits.get(value)
        return waited is not None and self.took(waited)
