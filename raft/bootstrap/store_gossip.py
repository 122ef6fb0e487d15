"""Introductions that stores exchange, and the admission that follows from them: pure, no IO.

Place in the data path: `raft.node.introductions` passes it each Introduce, sends what it returns,
and carries an admission out: identity durable first, then the node takes part.

A joining store introduces itself to the voters of its settings at an interval, and at once when it
learns of another store; an admitted one now and then. An admitted one answers with its
configuration each joining store, and each that speaks for another store than the configuration
names; where both know other stores of each other, only the one with the newer configuration
answers. A store that learns so that it was replaced logs an error.

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
"""Time between two introductions of a joining store; a lost one costs no more."""

BORN_INTERVAL_MS = 2_000
"""The same of an admitted store: for so long a replaced store may not know it."""

_log = logging.getLogger(__name__)


class StoreGossip:
    """Introductions of one store. `addresses` are those of the settings, of all voters."""

    def __init__(
        self, *, node_id: NodeId, store_id: str, born: bool, addresses: Mapping[NodeId, str]
    ) -> None:
        self._node_id = node_id
        self._store_id = store_id
        self._addresses = dict(addresses)
        self._formation: Formation | None = None
        self._logged: str | None = None  # what was logged last: once is enough
        if not born:
            self._formation = Formation(node_id=node_id, store_id=store_id, voters=addresses)

    @property
    def born(self) -> bool:
        return self._formation is None

    def born_alone(self) -> bytes | None:
        """Return the roster of a group of one, which is admitted at once with it, else None."""
        formation = self._formation
        if formation is None or not formation.is_alone:
            return None
        self._formation = None
        return self._roster(Birth(roster=formation.view, membership=b""))

    def to_all(
        self, configuration: Configuration | None, members: Iterable[NodeId] = ()
    ) -> list[Introduce]:
        """Return the introductions for every voter of the settings, and for `members`."""
        names = sorted({*self._addresses, *members} - {self._node_id})
        return [self._introduce(name, configuration) for name in names]

    def hear(
        self, message: Introduce, configuration: Configuration | None
    ) -> tuple[bytes | None, list[Introduce]]:
        """Process an introduction; return the roster of an admission, if it follows, and the
        messages to send.

        `configuration` is the one in force here, None before admission.
        """
        if self._formation is None:
            return None, self._answer(message, configuration)
        formation = self._formation
        before = formation.view
        birth = formation.hear(_introduction(message))
        if birth is not None:
            self._formation = None
            return self._roster(birth), []
        self._log_reason(formation)
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
        # Each may know another store of the other: the newer configuration decides.
        if configuration is not None and theirs.index <= configuration.index:
            return answer if is_replaced and theirs.index < configuration.index else []
        self._log_once(
            f"{message.sender} knows another store ({named.store_id}) as {self._node_id}: this "
            f"one ({self._store_id}) was replaced, and does not count"
        )
        return []

    def _log_reason(self, formation: Formation) -> None:
        if formation.replaced_by is not None:
            known = formation.replaced_by or "one without an identity"
            self._log_once(
                f"this store ({self._store_id}) is empty but the group knows another one of this "
                f"name ({known}): remove the member {self._node_id} and add it again"
            )
        elif formation.group_exists:
            self._log_once(
                f"the group exists and does not know {self._node_id}: add it as a member with the "
                f"store {self._store_id}"
            )

    def _log_once(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
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
    """Return an admitted store's first configuration, for a log and snapshots without one."""
    return Configuration(index=0, membership=decode_membership(roster))
