"""Offset resets, by the committed log, and how often consumers follow them.

Place in the data path: `log_model` hands it the commands that reset, `reset_clients` each move of a
consumer. It does not read the broker's table.

Rules: a consumer's pull is answered with another offset only where a reset requests it, and where
the queue begins later now; each reset moves the one consumer of a group once at most: it reads on
from there. (Twice where a replica without the reset answered the pull in between: it shows
committed messages, as followers do.) While a reset is not followed the group's offset is the
reset's, whatever is committed, and it ends only once the consumer has pulled from there, after the
administrator requested it: an entry of the log may be committed long after it was appended, and
meanwhile the consumer may have followed an earlier try of the same request. At the end each was
followed.

One thing looks like following: a pull from the very offset of the reset, which was sent before the
reset was requested, never answered, and arrives after it. It ends the reset too: one reset, and
within the time that a link and a commit may delay it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from broker.entry.payload import ClearResetCommand, ResetCommand
from chaos.sim.machine.violation import Violation

__all__ = ["ResetModel"]

_Key: TypeAlias = tuple[str, str, int]  # group, topic, queue id

# A link keeps bytes for five seconds; the request then waits for a paused broker, and for a commit.
_LOST_MS_MAX: Final = 30_000


class ResetModel:
    """The resets of one broker group. Methods raise Violation."""

    def __init__(self, counts: dict[str, int], now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._counts = counts
        self._pending: dict[_Key, int] = {}
        self._made: dict[_Key, list[int]] = {}  # offsets of all resets, in the log's order
        # Requested resets: the offset, and the number of the consumer's last pull before.
        self._requested: dict[_Key, list[tuple[int | None, int]]] = {}
        # Resets that were dropped, or that another one has replaced: the offset of the last of
        # them, and the number of the consumer's last pull before.
        self._dropped: dict[_Key, tuple[int, int]] = {}
        self._pulls: dict[_Key, int] = {}  # number of pulls of the consumer
        # Offsets of the consumer's pulls since the last reset was requested, by the pull's number;
        # first the one of its position then. No entry if it has started anew.
        self._places: dict[_Key, dict[int, int]] = {}
        # Offsets of unanswered pulls, and when they were given up.
        self._lost: dict[_Key, list[tuple[int, int]]] = {}
        self._followed: dict[_Key, int] = {}  # number of resets that can move the consumer no more

    @property
    def pending(self) -> Mapping[_Key, int]:
        return self._pending

    def rows(self) -> set[tuple[str, str, int, int]]:
        """Return the pending resets as rows of the broker's own table."""
        return {(*key, offset) for key, offset in self._pending.items()}

    # The log -----------------------------------------------------------------------------------

    def reset(self, command: ResetCommand) -> None:
        for queue_id, offset in command.offsets:
            key = (command.group, command.topic, queue_id)
            if key in self._pending:
                self._dropped[key] = self._pending[key], self._pulls.get(key, 0)
            self._pending[key] = offset
            self._made.setdefault(key, []).append(offset)
            self._forget_places(key, offset)
            self._counts["offsets_reset"] += 1

    def clear(self, command: ClearResetCommand) -> None:
        key = (command.group, command.topic, command.queue_id)
        if self._pending.get(key) != command.offset:
            return
        places = self._places.get(key)
        if places is not None and command.offset not in places.values():
            if self._take_lost(key, command.offset):
                self._counts["resets_ended_by_late_pulls"] += 1
                del self._pending[key]
                return
            raise Violation(
                "resets",
                f"{key}: the reset to {command.offset} is cleared, the consumer has pulled from "
                f"{[*places.values()]} since",
            )
        del self._pending[key]

    def drop(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Drop the resets of a deleted topic or group."""
        for key, offset in list(self._pending.items()):
            if group == key[0] or topic == key[1]:
                self._dropped[key] = offset, self._pulls.get(key, 0)
                del self._pending[key]

    def _take_lost(self, key: _Key, offset: int) -> bool:
        """Return whether a lost pull from `offset` may arrive only now; each ends one reset."""
        oldest_ms = self._now_ms() - _LOST_MS_MAX
        lost = [(place, at_ms) for place, at_ms in self._lost.get(key, ()) if at_ms >= oldest_ms]
        taken = next((pull for pull in lost if pull[0] == offset), None)
        if taken is not None:
            lost.remove(taken)
        self._lost[key] = lost
        return taken is not None

    def _forget_places(self, key: _Key, offset: int) -> None:
        """Drop pulls from before the reset to `offset` was requested: they do not follow it."""
        places = self._places.get(key)
        if places is None:
            return
        pulls = [pull for to, pull in self._requested.get(key, ()) if to in {None, offset}]
        first = min(pulls[-1] if pulls else max(places), max(places))
        self._places[key] = {pull: place for pull, place in places.items() if pull >= first}

    # The consumer ------------------------------------------------------------------------------

    def on_requested(self, key: _Key, offset: int | None) -> None:
        """Record that a reset is about to be requested, to a time where `offset` is None."""
        self._requested.setdefault(key, []).append((offset, self._pulls.get(key, 0)))

    def on_answered(self, key: _Key, offset: int) -> None:
        """Check the answer that the group goes on at `offset`."""
        if offset not in self._made.get(key, ()):
            raise Violation("answered", f"{key}: a reset to {offset} is answered and not done")

    def made_count(self, key: _Key) -> int:
        return len(self._made.get(key, ()))

    def on_begun(self, key: _Key, made_count: int) -> None:
        """Record that the consumer starts at the group's offset.

        It includes the first `made_count` resets.
        """
        self._followed[key] = max(self._followed.get(key, 0), made_count)
        self._places.pop(key, None)

    def on_pull(self, key: _Key, offset: int) -> None:
        """Record that the consumer pulls from `offset`, and will until it is moved."""
        self._pulls[key] = self._pulls.get(key, 0) + 1
        self._places.setdefault(key, {})[self._pulls[key]] = offset

    def on_lost(self, key: _Key, offset: int) -> None:
        """Record that a pull from `offset` was given up: it may still be on its way to a broker."""
        self._lost.setdefault(key, []).append((offset, self._now_ms()))

    def on_behind(self, key: _Key, offset: int) -> None:
        """Record that a replica other than the leader answered the pull from a reset's offset.

        It may lack the reset, so that the leader moves the consumer once more.
        """
        made, followed = self._made.get(key, []), self._followed.get(key, 0)
        if followed and self._pending.get(key) == made[followed - 1] == offset:
            self._followed[key] = followed - 1
            self._counts["resets_followed_behind"] += 1

    def on_sent_back(self, key: _Key, offset: int, to: int) -> None:
        """Check an answer that moves the one consumer from `offset` to another offset."""
        made, followed = self._made.get(key, []), self._followed.get(key, 0)
        place = next((at for at in range(followed, len(made)) if made[at] == to), None)
        was_pending = to == self._pending.get(key) or self._dropped.get(key) == (
            to,
            self._pulls.get(key, 0),
        )
        if place is None and offset == to and was_pending and made[followed - 1] == to:
            # Another leader, or one that has restarted, does not know that it was sent there: the
            # consumer only drops what it has from before. The group may be deleted, or reset once
            # more, while such an answer is on its way, which is that of the consumer's last pull.
            self._counts["resets_repeated"] += 1
            return
        if place is None:
            raise Violation(
                "resets",
                f"{key}: the consumer is sent from {offset} to {to}; it has followed {followed} "
                f"resets of {made}",
            )
        self._followed[key] = place + 1
        self._counts["resets_followed"] += 1
