"""How a node with an empty store finds out whether it may take part: pure, no IO.

Place in the data path: `raft.node.node` (and the simulator's node) asks it while the store is
unborn, tells it each introduction that arrives, and sends what `view` says.

A voter whose disk was wiped has forgotten its votes and its acknowledgements; under its old name
it could vote twice or make up a majority that lost what it had promised. So a store has an
identity (`raft.store.identity`), and a node with an empty one is unborn: it neither votes,
campaigns nor acknowledges. It is born in one of three ways:

- the group is new: every initial voter has told the same complete roster, name by name the same
  stores as this node has heard of;
- a born peer's configuration names exactly this store: the group knows it (it crashed between the
  others' birth and its own, or it was added with this store);
- it is the only initial voter.

A born peer whose configuration has another store under this name means that this one was wiped:
it stays unborn until a configuration names its new store, which an operator asks for.

Why the roster must be told by all, and not only be known: a node is born with the roster that the
others told, and they tell one with another store only before they are born themselves. A majority
that committed anything was born with the lost store's identity, so no complete roster without it
can be told any more. A store that was superseded never comes back (`_superseded`), so that a late
message of a wiped store changes nothing.

Source: the wiped voter is the case that Raft 5.1 leaves out (persistent state is assumed to
survive); compare Alagappan et al., "Protocol-aware recovery", 3.1 (crash versus lost disk).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raft.messages import NodeId

__all__ = ["Birth", "Formation", "Introduction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What a node says of itself and of the group.

    `roster` maps names to stores: of an unborn node those that it has heard of, of a born one
    those of its configuration, learners included ("" where a store is unknown). `membership` is
    the born node's configuration, empty for an unborn one.
    """

    sender: NodeId
    store_id: str
    born: bool
    roster: Mapping[NodeId, str]
    membership: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """Make this durable, then take part. `membership` is empty where the group is new."""

    roster: Mapping[NodeId, str]
    membership: bytes


class Formation:
    """One unborn store. `voters` are those of the node's own settings.

    `hear` returns a Birth once; nothing is to be told to it after that.
    """

    def __init__(self, *, node_id: NodeId, store_id: str, voters: Iterable[NodeId]) -> None:
        assert store_id, "a store has an identity from its first moment"
        self._node_id = node_id
        self._store_id = store_id
        self._voters = frozenset(voters)
        self._known: dict[NodeId, str] = {node_id: store_id}
        self._told: dict[NodeId, Mapping[NodeId, str]] = {}  # what each peer knew, of its store
        self._superseded: set[tuple[NodeId, str]] = set()
        self._born_peers: dict[NodeId, str | None] = {}  # the store that it has under our name

    @property
    def view(self) -> dict[NodeId, str]:
        """The voters' stores as far as they are known, to be told to all."""
        return {name: self._known[name] for name in sorted(self._known)}

    @property
    def is_alone(self) -> bool:
        """This node is the whole group: born without asking."""
        return self._voters == {self._node_id}

    @property
    def group_exists(self) -> bool:
        """A born peer was heard of: the group will not be formed anew."""
        return bool(self._born_peers)

    @property
    def replaced_by(self) -> str | None:
        """The store that the group knows under this node's name, where it is another one.

        "" where the group knows the name but no store of it.
        """
        return next((store for store in self._born_peers.values() if store is not None), None)

    def hear(self, said: Introduction) -> Birth | None:
        """A peer introduced itself."""
        assert said.sender != self._node_id
        if said.born:
            return self._hear_born(said)
        if said.sender not in self._voters or (said.sender, said.store_id) in self._superseded:
            return None
        known = self._known.get(said.sender)
        if known is not None and known != said.store_id:
            self._superseded.add((said.sender, known))
        self._known[said.sender] = said.store_id
        self._told[said.sender] = dict(said.roster)
        return self._formed()

    def _hear_born(self, said: Introduction) -> Birth | None:
        named = said.roster.get(self._node_id)
        if named == self._store_id:
            return Birth(roster=dict(said.roster), membership=said.membership)
        self._born_peers[said.sender] = named
        return None

    def _formed(self) -> Birth | None:
        if self._born_peers or self._known.keys() != self._voters:
            return None
        others = self._voters - {self._node_id}
        if any(self._told.get(voter) != self._known for voter in others):
            return None
        return Birth(roster=self.view, membership=b"")
