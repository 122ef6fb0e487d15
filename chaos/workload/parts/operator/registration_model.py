"""What a name server has to know of one broker group whose members register by hand. Pure.

Place in the data path: `chaos.workload.parts.operator.registrations` draws what the members do, and
takes from here what each request is answered with, and what routes show behind it.

Invariants: nothing of the name servers' own code is used; a member belongs to the connection that
it registered over last, and leaves with that one alone; queues come from the leader, and go with
the last member.

Source: RocketMQ RouteInfoManager; docs/DIVERGENCE.md for terms and for UNREGISTER_BROKER.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["GroupModel", "Queues", "Version", "route_of_groups"]

_LEADER = 0
_WRITE = 2
_NO_ROUTE = "17"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The version of a registration: the member's term, and the number of its change."""

    term: int
    counter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """The queues of one topic."""

    read: int
    write: int
    perm: int
    flag: int

    def text(self, perm: int) -> str:
        return f"read={self.read} write={self.write} perm={perm} flag={self.flag}"


@dataclass(slots=True, kw_only=True)
class _Member:
    number: int
    version: Version
    connection: int


class GroupModel:
    """The group as one name server knows it. Members are named by their addresses."""

    def __init__(self) -> None:
        self._members: dict[str, _Member] = {}
        self._queues: dict[str, tuple[Queues, int]] = {}  # by topic, with the permission shown
        self._leader_term = 0
        self._version: Version | None = None  # of the registration that the queues came from

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(sorted(self._members))

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted(self._queues))

    def connection_of(self, address: str) -> int:
        """Return the number of the connection that a member belongs to."""
        return self._members[address].connection

    def version_of(self, address: str) -> Version:
        return self._members[address].version

    # Requests, each with what it is answered with ------------------------------------------------

    def register(
        self,
        address: str,
        number: int,
        version: Version,
        topics: Mapping[str, Queues],
        connection: int,
    ) -> str:
        """Return the code, and for a follower the leader's address."""
        holder = self._holder(number)
        own = self._members.get(address)
        older = [
            member.version.term
            for member in (None if holder is None else self._members[holder], own)
            if member is not None
        ]
        if any(version.term < term for term in older):
            return "1"
        if number == _LEADER and version.term < self._leader_term:
            return "1"
        if holder is not None:
            del self._members[holder]
        self._members[address] = _Member(number=number, version=version, connection=connection)
        leader = self._holder(_LEADER)
        if number != _LEADER:
            return f"0 {leader or '-'}"
        self._leader_term = version.term
        for topic, queues in topics.items():
            if version != self._version or topic not in self._queues:
                self._queues[topic] = queues, queues.perm
        self._version = version
        return "0 -"

    def unregister(self, address: str, connection: int) -> None:
        """A member leaves, over the connection that it belongs to; over another it stays."""
        member = self._members.get(address)
        if member is not None and member.connection == connection:
            self._remove(address)

    def close(self, connection: int) -> None:
        """A connection ends, and with it the members that belong to it."""
        gone = [at for at, member in self._members.items() if member.connection == connection]
        for address in gone:
            self._remove(address)

    def heartbeat(self, address: str) -> str:
        """Return the code: that of BROKER_NOT_EXIST, of a member that is not there."""
        return "0" if address in self._members else "211"

    def query_version(self, address: str, version: Version) -> str:
        """Return whether the version is another than the one that is known, and that one."""
        member = self._members.get(address)
        if member is None:
            return "true -"
        known = member.version
        return f"{str(known != version).lower()} {known.term}.{known.counter}"

    def set_write(self, *, writable: bool) -> str:
        """Give or take the right to write; return of how many topics."""
        for topic, (queues, perm) in self._queues.items():
            self._queues[topic] = queues, perm | _WRITE if writable else perm & ~_WRITE
        return str(len(self._queues))

    def add_topic(self, topic: str, queues: Queues) -> str:
        """Return the code of a topic that is registered by hand, for this group alone."""
        if not self._members:
            return "1"
        self._queues[topic] = queues, queues.perm
        return "0"

    def delete_topic(self, topic: str) -> None:
        self._queues.pop(topic, None)

    # What is shown -------------------------------------------------------------------------------

    def members_text(self) -> str:
        """Return the members by their numbers."""
        rows = sorted((member.number, address) for address, member in self._members.items())
        return " ".join(f"{number}={address}" for number, address in rows) or "-"

    def route_text(self, topic: str) -> str:
        """Return what a route of the topic shows; "17" where there is none."""
        known = self._queues.get(topic)
        if known is None:
            return _NO_ROUTE
        queues, perm = known
        return f"{queues.text(perm)}, {self.members_text()}"

    def _holder(self, number: int) -> str | None:
        return next((at for at, each in self._members.items() if each.number == number), None)

    def _remove(self, address: str) -> None:
        del self._members[address]
        if not self._members:
            self._queues.clear()
            self._leader_term = 0
            self._version = None


def route_of_groups(groups: Sequence[GroupModel], topic: str) -> str:
    """Return what the route of a topic shows of each of some groups; "17" where none has it."""
    texts = [group.route_text(topic) for group in groups]
    if all(text == _NO_ROUTE for text in texts):
        return _NO_ROUTE
    return "; ".join("-" if text == _NO_ROUTE else text for text in texts)
