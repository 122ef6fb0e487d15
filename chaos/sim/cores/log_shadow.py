"""The log, votes and configurations that one simulated node has reported.

Place in the data path: `invariants` keeps one per node and compares them; nothing here queries the
core or the log. The lists hold index 1 at place 0, also for a log whose first entries were dropped.
"""

from __future__ import annotations

from typing import TypeAlias

from raft.events import Role
from raft.membership import Membership, decode_membership
from raft.messages import Entry, EntryKind, Index, NodeId, Term

__all__ = ["Config", "LogShadow"]

Config: TypeAlias = tuple[Index, Membership]


class LogShadow:
    """The reports of one node. Lists hold index 1 at place 0."""

    __slots__ = (
        "applied_index",
        "base",
        "chains",
        "commit_index",
        "configs",
        "durable_index",
        "durable_term",
        "durable_vote",
        "role",
        "store_id",
        "term",
        "terms",
    )

    def __init__(self, first: Membership, store_id: str) -> None:
        self.store_id = store_id
        self.configs: list[Config] = [(0, first)]  # the last one is in force
        self.base: Index = 0  # the log holds nothing up to here; the lists below still do
        self.terms: list[Term] = []
        self.chains: list[int] = []
        self.durable_index: Index = 0
        self.durable_term: Term = 0
        self.durable_vote: NodeId | None = None
        self.term: Term = 0
        self.role = Role.FOLLOWER
        self.commit_index: Index = 0
        self.applied_index: Index = 0

    @property
    def voters(self) -> tuple[NodeId, ...]:
        """The voters of the configuration in force."""
        return self.configs[-1][1].voter_ids

    def has_durable(self, index: Index, chain: int) -> bool:
        return self.durable_index >= index and self.chains[index - 1] == chain

    def note_config(self, entry: Entry) -> None:
        """Put a configuration entry in force, unless an installed snapshot has a newer one."""
        if entry.kind is EntryKind.CONFIG and entry.index > self.configs[-1][0]:
            self.configs.append((entry.index, decode_membership(entry.payload)))

    @property
    def committed_own_term(self) -> bool:
        return self.commit_index > 0 and self.terms[self.commit_index - 1] == self.term

    def drop_configs(self, index: Index) -> None:
        """Drop the configurations at `index` or behind it."""
        while self.configs[-1][0] >= max(1, index):
            self.configs.pop()
