"""Messages that wait elsewhere for a topic that is deleted meanwhile, by the committed log.

Place in the data path: `log_model` hands it every message that begins to wait (a half, a delayed
message, one with a time of its own), every one that becomes visible, and the deletions;
`client_checker` queries it about acknowledged messages. It does not read the broker's tables.

Rules: what began to wait before its topic was deleted never becomes visible in the next topic of
that name, whatever it waited for, and however often it was resumed. In the entry of the deletion
itself its messages come first.
"""

from __future__ import annotations

from chaos.sim.groups.models.stored import Stored
from chaos.sim.machine.violation import Violation
from raft.messages import Index

__all__ = ["DeletionModel"]


class DeletionModel:
    """The deletions of one broker group. Methods raise Violation."""

    def __init__(self) -> None:
        self._deleted_at: dict[str, Index] = {}  # by topic: the last time
        self._waits: dict[str, Stored] = {}  # by value: where it began to wait first

    def on_deleted(self, topic: str, index: Index) -> None:
        self._deleted_at[topic] = index

    def on_waiting(self, stored: Stored) -> None:
        """Record a half, or a message for later delivery."""
        self._waits.setdefault(stored.value, stored)

    def on_visible(self, stored: Stored) -> None:
        """Check a message that is stored where consumers read it."""
        waited = self._waits.get(stored.value)
        if waited is not None and self.took(waited):
            raise Violation(
                "deletions",
                f"{stored.value} waited at {waited.place}, {waited.real_topic} was deleted since, "
                f"and it is stored at {stored.place}",
            )

    def took(self, stored: Stored) -> bool:
        """Return whether the waiting message was for a topic deleted since."""
        return stored.index <= self._deleted_at.get(stored.real_topic, 0)

    def has_taken(self, value: str) -> bool:
        """Return whether the message waited at its topic's deletion, or was delivered before."""
        waited = self._waits.get(value)
        return waited is not None and self.took(waited)
