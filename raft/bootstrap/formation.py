"""Decides whether a node with an empty store may take part in its group: pure, no IO.

Place in the data path: `raft.bootstrap.store_gossip` passes it each introduction that arrives
before the store's admission, and sends its `view`.

A voter whose disk was wiped has forgotten its votes and its acknowledgements; under its old name it
could vote twice or complete a majority that lost what it had promised. So a store has an identity
(`raft.store.identity`), and a node with an empty one is joining (`born` is False): it neither
votes, campaigns nor acknowledges. It is admitted (born) in one of three ways:

- the group is new: every initial voter has sent the same complete roster, name by name the same
  stores as this node knows;
- an admitted peer's configuration names exactly this store: the group knows it (it crashed between
  the others' admission and its own, or it was added with this store);
- it is the only initial voter.

An admitted peer whose configuration has another store under this name means that this one was
wiped: it keeps joining until a configuration names its new store, which an operator requests.

Why all must have sent the roster, and it is not enough that it is known: a node is admitted with
the roster that the others sent, and they send one with another store only before their own
admission. A majority that committed anything was admitted with the lost store's identity, so no
complete roster without it can be sent any more. A store that was superseded never comes back
(`_superseded`), so that a late message of a wiped store changes nothing.

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
    """A node's report of itself and of the group.

    `roster` maps names to stores: of a joining node those that it knows, of an admitted one those
    of its configuration, learners included ("" where a store is unknown). `membership` is the
    admitted node's configuration, empty for a joining one.
    """

    sender: NodeId
    store_id: str
    born: bool
    roster: Mapping[NodeId, str]
    membership: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """Admission, to be durable before the node takes part. `membership`: empty in a new group."""

    roster: Mapping[NodeId, str]
    membership: bytes


class Formation:
    """Admission of one joining store. `voters` are those of the node's own settings.

    `hear` returns a Birth once, and is not to be called after that.
    """

    def __init__(self, *, node_id: NodeId, store_id: str, voters: Iterable[NodeId]) -> None:
        assert store_id, "a store has an identity from its first moment"
        self._node_id = node_id
        self._store_id = store_id
        self._voters = frozenset(voters)
        self._known: dict[NodeId, str] = {node_id: store_id}
        self._rosters: dict[NodeId, Mapping[NodeId, str]] = {}  # what each peer knew, of its store
        self._superseded: set[tuple[NodeId, str]] = set()
        self._born_peers: dict[NodeId, str | None] = {}  # their store of this node's name

    @property
    def view(self) -> dict[NodeId, str]:
        """Known stores of the voters, to be sent to all."""
        return {name: self._known[name] for name in sorted(self._known)}

    @property
    def is_alone(self) -> bool:
        """Whether this node is the whole group, and is admitted at once."""
        return self._voters == {self._node_id}

    @property
    def group_exists(self) -> bool:
        """Whether an admitted peer is known: the group will not be formed anew."""
        return bool(self._born_peers)

    @property
    def replaced_by(self) -> str | None:
        """Store that the group knows under this node's name, where it is another one.

        "" where the group knows the name but no store of it.
        """
        return next((store for store in self._born_peers.values() if store is not None), None)

    def hear(self, introduction: Introduction) -> Birth | None:
        """Process a peer's introduction; return the admission, if it follows."""
        assert introduction.sender != self._node_id
        if introduction.born:
            return self._hear_born(introduction)
        if (
            introduction.sender not in self._voters
            or (introduction.sender, introduction.store_id) in self._superseded
        ):
            return None
        known = self._known.get(introduction.sender)
        if known is not None and known != introduction.store_id:
            self._superseded.add((introduction.sender, known))
        self._known[introduction.sender] = introduction.store_id
        self._rosters[introduction.sender] = dict(introduction.roster)
        return self._formed()

    def _hear_born(self, introduction: Introduction) -> Birth | None:
        named = introduction.roster.get(self._node_id)
        if named == self._store_id:
            return Birth(roster=dict(introduction.roster), membership=introduction.membership)
        self._born_peers[introduction.sender] = named
        return None

    def _formed(self) -> Birth | None:
        if self._born_peers or self._known.keys() != self._voters:
            return None
        others = self._voters - {self._node_id}
        if any(self._rosters.get(voter) != self._known for voter in others):
            return None
        return Birth(roster=self.view, membership=b"")
