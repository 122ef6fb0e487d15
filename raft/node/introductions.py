"""A node introduces its store to its peers: often until it is admitted, then now and then.

Place in the data path: none; `raft.bootstrap.store_gossip` decides what is sent and who is
admitted, `raft.node.node` what follows from it.

Invariants: the admission of a store is durable before the node takes part; a store whose log is
being repaired introduces itself to nobody, and answers who does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from raft.bootstrap.store_gossip import (
    BORN_INTERVAL_MS,
    INTERVAL_MS,
    StoreGossip,
    initial_configuration,
)
from raft.membership import Configuration
from raft.messages import Introduce, NodeId
from raft.node.node_config import NodeConfig
from raft.peers.transport import Transport
from raft.replicated_log import Phase
from raft.store.node_store import NodeStore

__all__ = ["Introductions"]

_log = logging.getLogger(__name__)


class Introductions:
    """Introductions of one node; `on_born` is called once its store is admitted. A `configuration`
    is the one in force, None before SERVING."""

    def __init__(
        self,
        config: NodeConfig,
        store: NodeStore,
        transport: Transport,
        on_born: Callable[[], None],
    ) -> None:
        self._config = config
        self._store = store
        self._transport = transport
        self._on_born = on_born
        self._gossip = StoreGossip(
            node_id=config.node_id,
            store_id=store.identity.store_id,
            born=store.identity.born,
            addresses=config.peers,
        )

    def peers(self) -> frozenset[NodeId]:
        """Return the peers that the settings and the roster of the admission name."""
        names = set(self._config.peers)
        if self._store.identity.roster:
            roster = initial_configuration(self._store.identity.roster).membership
            names |= {member.node_id for member in roster.members}
        return frozenset(names - {self._config.node_id})

    def bear_alone(self) -> None:
        """Admit the store where there is nobody to ask."""
        roster = self._gossip.born_alone()
        if roster is not None:
            self._store.bear(roster)

    def introduce(self, phase: Phase, configuration: Configuration | None) -> int:
        """Introduce the store; return in how many milliseconds to do it again."""
        if phase is not Phase.REPAIRING:
            members = () if configuration is None else configuration.membership.members
            names = [member.node_id for member in members]
            for message in self._gossip.to_all(configuration, names):
                self._transport.send(message)
            self._transport.flush()
        return INTERVAL_MS if phase is Phase.UNBORN else BORN_INTERVAL_MS

    def hear(self, message: Introduce, configuration: Configuration | None) -> None:
        """Take a peer's introduction, and answer it."""
        roster, answers = self._gossip.hear(message, configuration)
        if roster is not None:
            _log.info("the store is born")
            self._store.bear(roster)
            self._on_born()
            answers = self._gossip.to_all(initial_configuration(roster))
        for answer in answers:
            self._transport.send(answer)
        self._transport.flush()
