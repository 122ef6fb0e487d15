"""Owners of queues, by the committed log and by the belief of orderly consumers.

Place in the data path: `log_model` hands it the commands that lock and unlock, `lock_clients` their
grants and what they consume. It reads neither the broker's table nor its leases.

Rules: when a client gets a grant, the log has it as the owner; a client consumes no queue that has
another owner in the log, and no two clients of a group believe at once that they hold the same
queue. Requests that a client sent before it unlocked (with a lower claim) do not change what it
owns since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from broker.entry.payload import LockCommand, UnlockCommand
from chaos.sim.machine.violation import Violation

__all__ = ["LockModel"]

_Queue: TypeAlias = tuple[str, int]  # topic, queue id


@dataclass(frozen=True, slots=True)
class _Member:
    client_id: str
    host: str  # the machine that it runs on
    lives: Callable[[], bool]
    holds: Callable[[str, int], bool]  # whether it lives, and believes that it holds the queue


class LockModel:
    """The locks of one broker group. Methods raise Violation."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._owners: dict[tuple[str, _Queue], tuple[str, int]] = {}  # with claims; by group, queue
        self._members: dict[str, list[_Member]] = {}  # by group

    def rows(self) -> set[tuple[str, str, int, str, int]]:
        """Return the locks as rows of the broker's own table."""
        return {(group, *queue, *owner) for (group, queue), owner in self._owners.items()}

    # The log -----------------------------------------------------------------------------------

    def lock(self, command: LockCommand) -> None:
        for topic, queue_id in command.queues:
            key = (command.group, (topic, queue_id))
            client_id, claim = self._owners.get(key, (None, 0))
            if client_id == command.client_id and claim > command.claim:
                continue
            self._counts["queues_taken_over"] += client_id not in {None, command.client_id}
            self._counts["queues_claimed_anew"] += client_id == command.client_id
            self._owners[key] = (command.client_id, command.claim)

    def unlock(self, command: UnlockCommand) -> None:
        for topic, queue_id in command.queues:
            key = (command.group, (topic, queue_id))
            client_id, claim = self._owners.get(key, (None, 0))
            if client_id == command.client_id and claim <= command.claim:
                del self._owners[key]

    def drop(self, *, group: str | None = None, topic: str | None = None) -> None:
        """Drop the locks of a deleted topic or group."""
        self._owners = {
            key: owner
            for key, owner in self._owners.items()
            if key[0] != group and key[1][0] != topic
        }

    # Orderly consumers -------------------------------------------------------------------------

    def join(
        self,
        group: str,
        client_id: str,
        *,
        host: str,
        lives: Callable[[], bool],
        holds: Callable[[str, int], bool],
    ) -> None:
        """Add a member; `lives` and `holds` are called for as long as the seed lasts."""
        member = _Member(client_id, host, lives, holds)
        self._members.setdefault(group, []).append(member)

    def live_owners(self, group: str) -> list[tuple[str, str]]:
        """Return (machine, client) of live members that own a queue in the log."""
        return [
            (member.host, member.client_id)
            for member in self._members.get(group, ())
            if member.lives() and self.owns(group, member.client_id)
        ]

    def live_members(self, group: str) -> int:
        return sum(member.lives() for member in self._members.get(group, ()))

    def owns(self, group: str, client_id: str) -> bool:
        """Return whether the client owns any queue of the group in the log."""
        return any(
            of_group == group and owner == client_id
            for (of_group, _), (owner, _) in self._owners.items()
        )

    def on_granted(self, group: str, client_id: str, topic: str, queue_id: int) -> None:
        """Check a grant of the queue, new or renewed, when the client receives it."""
        self._counts["queues_granted"] += 1
        self._check_owner(group, client_id, topic, queue_id, "is granted")
        for member in self._members[group]:
            if member.client_id != client_id and member.holds(topic, queue_id):
                raise Violation(
                    "locks",
                    f"{client_id} is granted {topic}/{queue_id}, {member.client_id} holds it still",
                )

    def on_consumed(self, group: str, client_id: str, topic: str, queue_id: int) -> None:
        """Check that the client may consume a message of the queue now."""
        self._check_owner(group, client_id, topic, queue_id, "consumes")

    def _check_owner(
        self, group: str, client_id: str, topic: str, queue_id: int, what: str
    ) -> None:
        owner, _ = self._owners.get((group, (topic, queue_id)), (None, 0))
        if owner != client_id:
            raise Violation("locks", f"{client_id} {what} {topic}/{queue_id}, it is {owner}'s")
