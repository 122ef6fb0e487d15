"""Offset resets, as the committed log tells of them, and how often consumers are sent back.

Place in the data path: `committed_log` hands it the commands that reset, `reset_clients` each move
of a consumer. Knows nothing of the broker's table.

Rules: a consumer's pull is answered with another offset only where a reset asks for it, and where
the queue begins later now; each reset sends the one consumer of a group back once at most: what it
reads after that it reads on from there. (Twice where a replica that had not heard of the reset yet
answered the pull in between: it shows committed messages, as followers do.) While a reset is not
followed the group's offset is the reset's, whatever is committed, and it ends only once the
consumer has pulled from there. At the end each was followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from broker.store.payload import ClearResetCommand, ResetCommand
from chaos.sim.violation import Violation

__all__ = ["ResetModel"]

_Key: TypeAlias = tuple[str, str, int]  # group, topic, queue id


class ResetModel:
    """Of one broker group. Methods raise Violation."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._pending: dict[_Key, int] = {}
        self._made: dict[_Key, list[int]] = {}  # offsets of all resets, in the log's order
        # Where the consumer has pulled from since the last reset, its place of then first; none
        # where it has begun anew.
        self._places: dict[_Key, list[int]] = {}
        self._followed: dict[_Key, int] = {}  # so many of them can move the consumer no more

    @property
    def pending(self) -> Mapping[_Key, int]:
        return self._pending

    def rows(self) -> set[tuple[str, str, int, int]]:
        """As the broker's own table has them."""
        return {(*key, offset) for key, offset in self._pending.items()}

    # The log -----------------------------------------------------------------------------------

    def reset(self, command: ResetCommand) -> None:
        for queue_id, offset in command.offsets:
            key = (command.group, command.topic, queue_id)
            self._pending[key] = offset
            self._made.setdefault(key, []).append(offset)
            if key in self._places:
                del self._places[key][:-1]
            self._counts["offsets_reset"] += 1

    def clear(self, command: ClearResetCommand) -> None:
        key = (command.group, command.topic, command.queue_id)
        if self._pending.get(key) != command.offset:
            return
        places = self._places.get(key)
        if places is not None and command.offset not in places:
            raise Violation(
                "resets",
                f"{key}: the reset to {command.offset} is cleared, the consumer has pulled from "
                f"{places} since",
            )
        del self._pending[key]

    def drop(self, *, group: str | None = None, topic: str | None = None) -> None:
        """The topic or the group is deleted."""
        self._pending = {
            key: offset
            for key, offset in self._pending.items()
            if group != key[0] and topic != key[1]
        }

    # The consumer ------------------------------------------------------------------------------

    def on_told(self, key: _Key, offset: int) -> None:
        """An administrator was told that the group goes on there."""
        if offset not in self._made.get(key, ()):
            raise Violation("told", f"{key}: a reset to {offset} is answered as done, it is not")

    def made_count(self, key: _Key) -> int:
        return len(self._made.get(key, ()))

    def on_begun(self, key: _Key, made_count: int) -> None:
        """The consumer begins at the group's offset; when it asked, so many resets were made: they
        are in that offset."""
        self._followed[key] = max(self._followed.get(key, 0), made_count)
        self._places.pop(key, None)

    def on_pull(self, key: _Key, offset: int) -> None:
        """The consumer pulls from here now, and until it hears where it leads."""
        self._places.setdefault(key, []).append(offset)

    def on_behind(self, key: _Key, offset: int) -> None:
        """A replica that does not lead answered the pull from where the consumer was sent: it may
        not have heard of the reset, so that the leader sends the consumer once more."""
        made, followed = self._made.get(key, []), self._followed.get(key, 0)
        if followed and self._pending.get(key) == made[followed - 1] == offset:
            self._followed[key] = followed - 1
            self._counts["resets_followed_behind"] += 1

    def on_sent_back(self, key: _Key, offset: int, to: int) -> None:
        """A pull of the one consumer from `offset` was answered with another place to go on."""
        made, followed = self._made.get(key, []), self._followed.get(key, 0)
        place = next((at for at in range(followed, len(made)) if made[at] == to), None)
        if place is None:
            raise Violation(
                "resets",
                f"{key}: the consumer is sent from {offset} to {to}; it has followed {followed} "
                f"resets of {made}",
            )
        self._followed[key] = place + 1
        self._counts["resets_followed"] += 1
