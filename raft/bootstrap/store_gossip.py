"""What stores tell each other of themselves, and what follows from it: pure, no IO.

Place in the data path: `raft.node.node` (and the simulator's node) hands it each Introduce, sends
what it gives back, and carries a birth out: identity durable first, then the node takes part.

An unborn store introduces itself to the voters of its settings at an interval, and at once when it
has heard of another store; a born one now and then. A born one answers with its configuration
whoever is unborn, and whoever speaks for another store than the configuration names; where both
know other stores of each other, only the one whose configuration is the newer answers. A store that
learns so that it was replaced says so loudly.

Source: raft/bootstrap/formation.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from raft.bootstrap.formation import Birth, Formation, Introduction
from raft.membership import (
    Configuration,
    Member,
    decode_membership,
    encode_membership,
    make_membership,
)
from raft.messages import Introduce, NodeId

__all__ = ["BORN_INTERVAL_MS", "INTERVAL_MS", "StoreGossip", "initial_configuration"]

INTERVAL_MS = 100
"""Between two introductions of an unborn store; a lost one costs no more."""

BORN_INTERVAL_MS = 2_000
"""Between two of a born one: so long may a store that was replaced not know it."""

_log = logging.getLogger(__name__)


class StoreGossip:
    """Of one store. `addresses` are those of the settings, of all voters."""

    def __init__(
        self, *, node_id: NodeId, store_id: str, born: bool, addresses: Mapping[NodeId, str]
    ) -> None:
        self._node_id = node_id
        self._store_id = store_id
        self._addresses = dict(addresses)
        self._formation: Formation | None = None
        self._said: str | None = None  # what was logged last: once is enough
        if not born:
            self._formation = Formation(node_id=node_id, store_id=store_id, voters=addresses)

    @property
    def born(self) -> bool:
        return self._formation is None

    def born_alone(self) -> bytes | None:
        """The roster of a group of one, which has nobody to ask. It is born with this."""
        formation = self._formation
        if formation is None or not formation.is_alone:
            return None
        self._formation = None
        return self._roster(Birth(roster=formation.view, membership=b""))

    def to_all(
        self, configuration: Configuration | None, members: Iterable[NodeId] = ()
    ) -> list[Introduce]:
        """What to tell every voter of the settings, and `members`."""
        names = sorted({*self._addresses, *members} - {self._node_id})
        return [self._introduce(name, configuration) for name in names]

    def hear(
        self, message: Introduce, configuration: Configuration | None
    ) -> tuple[bytes | None, list[Introduce]]:
        """The roster to be born with, if that follows, and what to send.

        `configuration` is the one in force here, None while unborn.
        """
        if self._formation is None:
            return None, self._answer(message, configuration)
        formation = self._formation
        before = formation.view
        birth = formation.hear(_introduction(message))
        if birth is not None:
            self._formation = None
            return self._roster(birth), []
        self._say_why(formation)
        return None, self.to_all(None) if formation.view != before else []

    def _answer(self, message: Introduce, configuration: Configuration | None) -> list[Introduce]:
        theirs = message.configuration
        answer = [self._introduce(message.sender, configuration)]
        if theirs is None:
            return answer
        known = configuration and configuration.membership.member(message.sender)
        is_replaced = bool(known and known.store_id not in {"", message.store_id})
        named = theirs.membership.member(self._node_id)
        if named is None or named.store_id in {"", self._store_id}:
            return answer if is_replaced else []
        # Each may know another store of the other: one of them has the last word.
        if configuration is not None and theirs.index <= configuration.index:
            return answer if is_replaced and theirs.index < configuration.index else []
        self._say(
            f"{message.sender} knows another store ({named.store_id}) as {self._node_id}: this "
            f"one ({self._store_id}) was replaced, and does not count"
        )
        return []

    def _say_why(self, formation: Formation) -> None:
        if formation.replaced_by is not None:
            known = formation.replaced_by or "one without an identity"
            self._say(
                f"this store ({self._store_id}) is empty but the group knows another one of this "
                f"name ({known}): remove the member {self._node_id} and add it again"
            )
        elif formation.group_exists:
            self._say(
                f"the group exists and does not know {self._node_id}: add it as a member with the "
                f"store {self._store_id}"
            )

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            _log.error("%s", text)

    def _introduce(self, receiver: NodeId, configuration: Configuration | None) -> Introduce:
        view = self._formation.view if self._formation is not None else {}
        return Introduce(
            sender=self._node_id,
            receiver=receiver,
            store_id=self._store_id,
            roster=tuple(view.items()),
            configuration=configuration,
        )

    def _roster(self, birth: Birth) -> bytes:
        if birth.membership:
            return birth.membership
        return encode_membership(
            make_membership(
                Member(node_id=name, address=self._addresses[name], store_id=store_id)
                for name, store_id in birth.roster.items()
            )
        )


def _introduction(message: Introduce) -> Introduction:
    configuration = message.configuration
    if configuration is None:
        return Introduction(
            sender=message.sender,
            store_id=message.store_id,
            born=False,
            roster=dict(message.roster),
            membership=b"",
        )
    membership = configuration.membership
    return Introduction(
        sender=message.sender,
        store_id=message.store_id,
        born=True,
        roster={member.node_id: member.store_id for member in membership.members},
        membership=encode_membership(membership),
    )


def initial_configuration(roster: bytes) -> Configuration:
    """The one that a born store begins with, where its log and its snapshots hold none."""
    return Configuration(index=0, membership=decode_membership(roster))
