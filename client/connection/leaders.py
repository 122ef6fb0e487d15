"""The choice of the node of a broker group that requests go to; pure.

Place in the data path: `client.connection.routes` has one `GroupLeader` per broker group; every
request to a group goes to `address`; `confirm`, `hint`, `refuse` or `fail` report its outcome.

The route names a leader (broker id 0), but it is only as fresh as the last poll and may still name
a dead node. So an answer beats the route: a node that answered as the leader is kept, a hint moves
to the node it names, and a failure moves on to the next node of the group, so that every node is
tried in turn until one answers or hints.

Of RocketMQ's groups only the route says who leads: a slave hands out POP messages, lists members
and answers offsets, behind its master or at odds with it, and says nothing of being a slave.

Source: RocketMQ's clients know the master from the route only; the hints are ledgermq's own.
"""

from __future__ import annotations

from collections.abc import Mapping

from remoting.protocol.route import MASTER_ID

__all__ = ["GroupLeader"]


class GroupLeader:
    """The node of one broker group that most likely leads it."""

    __slots__ = ("_by_route", "_current", "_master", "_nodes", "broker_name")

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self._nodes: tuple[str, ...] = ()
        self._master: str | None = None
        self._current: str | None = None
        self._by_route = False

    @property
    def address(self) -> str | None:
        """Table address of the node to send to; None where the group has no known node."""
        return self._current

    @property
    def nodes(self) -> tuple[str, ...]:
        """Table addresses of all known nodes, by broker id."""
        return self._nodes

    @property
    def goes_by_route(self) -> bool:
        """Whether only the route says who leads: the group is RocketMQ's."""
        return self._by_route

    def follow_route(self) -> None:
        """Find the leader by the route alone from now on: nodes answer here without leading."""
        if not self._by_route:
            self._by_route = True
            self._current = self._master

    def update(self, addresses: Mapping[int, str]) -> None:
        """Apply a fresh route: broker id -> table address.

        A leader that the previous route did not name is tried next; one that it named already is
        not, since answers received meanwhile are fresher.
        """
        self._nodes = tuple(address for _, address in sorted(addresses.items()))
        master = addresses.get(MASTER_ID)
        if self._by_route or (master is not None and master != self._master):
            self._current = master
        elif self._current is None and self._nodes:
            self._current = self._nodes[0]
        self._master = master

    def confirm(self, address: str) -> None:
        """Record that `address` answered as only the leader does."""
        if not self._by_route:
            self._current = address

    def hint(self, address: str) -> None:
        """Record that a node of the group named `address` as its leader."""
        self._current = address

    def refuse(self, address: str) -> None:
        """Try the next node where `address` is busy and the route names another master.

        A slave of RocketMQ refuses pulls and sends with the code of a busy broker and names nobody;
        a leader that is busy has to be tried again, not left.
        """
        if address != self._master:
            self.fail(address)

    def fail(self, address: str) -> None:
        """Try the next node from now on: `address` did not answer, or knows no leader."""
        if address != self._current or not self._nodes or self._by_route:
            return
        if address in self._nodes:
            position = self._nodes.index(address) + 1
            self._current = self._nodes[position % len(self._nodes)]
        else:
            self._current = self._nodes[0]
