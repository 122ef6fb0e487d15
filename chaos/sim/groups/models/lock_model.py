"""Whose queues are whose, as the committed log tells of it, and as orderly consumers believe.

Place in the data path: `committed_log` hands it the commands that lock and unlock, `lock_clients`
what they were granted and what they consume. Knows nothing of the broker's table or its leases.

Rules: a queue that a client was granted is the client's in the log when it hears of it; a client
consumes no queue that is another's in the log, and no two clients of a group believe at once that
they hold the same queue. What a client said before it gave queues back (its claim is lower then)
changes nothing of what it owns since.
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
    """Of one broker group. Methods raise Violation."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts
        self._owners: dict[tuple[str, _Queue], tuple[str, int]] = {}  # with claims; by group, queue
        self._members: dict[str, list[_Member]] = {}  # by group

    def rows(self) -> set[tuple[str, str, int, str, int]]:
        """As the broker's own table has them."""
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
        """The topic or the group is deleted."""
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
        """A member begins; `lives` and `holds` are asked for as long as the seed lasts."""
        member = _Member(client_id, host, lives, holds)
        self._members.setdefault(group, []).append(member)

    def live_owners(self, group: str) -> list[tuple[str, str]]:
        """(machine, client) of members that live and own a queue in the log."""
        return [
            (member.host, member.client_id)
            for member in self._members.get(group, ())
            if member.lives() and self.owns(group, member.client_id)
        ]

    def live_members(self, group: str) -> int:
        return sum(member.lives() for member in self._members.get(group, ()))

    def owns(self, group: str, client_id: str) -> bool:
        """Whether the log has any queue of the group as the client's."""
        return any(
            of_group == group and owner == client_id
            for (of_group, _), (owner, _) in self._owners.items()
        )

    def on_granted(self, group: str, client_id: str, topic: str, queue_id: int) -> None:
        """The client hears that it holds the queue, for the first time or again."""
        self._counts["queues_granted"] += 1
        self._check_owner(group, client_id, topic, queue_id, "is granted")
        for member in self._members[group]:
            if member.client_id != client_id and member.holds(topic, queue_id):
                raise Violation(
                    "locks",
                    f"{client_id} is granted {topic}/{queue_id}, {member.client_id} holds it still",
                )

    def on_consumed(self, group: str, client_id: str, topic: str, queue_id: int) -> None:
        """The client consumes a message, since it believes that it holds the queue."""
        self._check_owner(group, client_id, topic, queue_id, "consumes")

    def _check_owner(
        self, group: str, client_id: str, topic: str, queue_id: int, what: str
    ) -> None:
        owner, _ = self._owners.get((group, (topic, queue_id)), (None, 0))
        if owner != client_id:
            raise Violation("locks", f"{client_id} {what} {topic}/{queue_id}, it is {owner}'s")
