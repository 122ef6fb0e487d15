"""The members of a group, and the single steps by which they may change.

Place in the data path: `raft.core.core` decides which membership is in force and which change may
be accepted; the shell finds in it the addresses to dial and the stores to trust; `raft.peers.wire`
carries one in an InstallSnapshot. Pure values and functions.

A voter counts in every quorum and may lead. A learner gets the whole log and counts in nothing: so
a new member catches up before it counts (4.2.1).

Invariants:
- no name stands twice, neither among voters and learners together nor in one of them;
- two memberships with one change between them differ in at most one voter, so that each majority of
  the one shares a voter with each majority of the other (4.1);
- a change never leaves a group without voters. Only a node that knows of no group yet has a
  membership without any (`Membership()`), and that is never encoded.

Source: Ongaro's dissertation, chapter 4. What it leaves open, the rule that a leader first commits
an entry of its own term, is kept by `raft.core.core`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

import msgpack

from raft.ids import NODE_NAME_SIZE_MAX, Index, NodeId

__all__ = [
    "LEARNERS_COUNT_MAX",
    "VOTERS_COUNT_MAX",
    "AddLearner",
    "Configuration",
    "Member",
    "Membership",
    "MembershipChange",
    "MembershipError",
    "PromoteLearner",
    "RemoveMember",
    "changed",
    "decode_membership",
    "encode_membership",
    "make_membership",
]

VOTERS_COUNT_MAX = 7
"""A majority of more than seven costs more than it gives."""

LEARNERS_COUNT_MAX = 7
"""Each costs the leader a copy of everything."""

_STORE_ID_LENGTH = 32
_HEX_DIGITS = frozenset("0123456789abcdef")
_PAYLOAD_SIZE_MAX = 64 << 10


class MembershipError(ValueError):
    """The data is no valid membership, or the change can't be made; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member. `address` is "host:port", "" where only the name is known; `store_id` names its
    store when it was added: 32 hex digits, "" for a store older than these names."""

    node_id: NodeId
    address: str = ""
    store_id: str = ""

    def __post_init__(self) -> None:
        if not self.node_id or len(self.node_id.encode()) > NODE_NAME_SIZE_MAX:
            raise MembershipError(f"name {self.node_id!r:.80}: not 1 to {NODE_NAME_SIZE_MAX} bytes")
        if len(self.address.encode()) > NODE_NAME_SIZE_MAX:
            raise MembershipError(
                f"address of {self.node_id}: more than {NODE_NAME_SIZE_MAX} bytes"
            )
        if self.store_id and not (
            len(self.store_id) == _STORE_ID_LENGTH and _HEX_DIGITS.issuperset(self.store_id)
        ):
            raise MembershipError(
                f"store_id of {self.node_id}: {self.store_id!r:.80} is not {_STORE_ID_LENGTH} "
                f"hex digits"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Voters and learners, ordered by name; `make_membership` sorts. Raises MembershipError."""

    voters: tuple[Member, ...] = ()
    learners: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        for what, members, count_max in (
            ("voters", self.voters, VOTERS_COUNT_MAX),
            ("learners", self.learners, LEARNERS_COUNT_MAX),
        ):
            if len(members) > count_max:
                raise MembershipError(f"{what}: {len(members)}, at most {count_max} are allowed")
            names = [member.node_id for member in members]
            if names != sorted(names):
                raise MembershipError(f"{what}: not in the order of their names: {names}")
        names = [member.node_id for member in (*self.voters, *self.learners)]
        if len(set(names)) != len(names):
            raise MembershipError(f"a name stands twice in {names}")

    @property
    def voter_ids(self) -> tuple[NodeId, ...]:
        return tuple(member.node_id for member in self.voters)

    @property
    def learner_ids(self) -> tuple[NodeId, ...]:
        return tuple(member.node_id for member in self.learners)

    @property
    def members(self) -> tuple[Member, ...]:
        return self.voters + self.learners

    def member(self, node_id: NodeId) -> Member | None:
        """Return the voter or learner of that name."""
        return next((one for one in self.members if one.node_id == node_id), None)

    def has_voter(self, node_id: NodeId, store_id: str) -> bool:
        """Return whether the node of that name on that store is a voter. Where either store is
        unknown, "", the name decides."""
        for voter in self.voters:
            if voter.node_id == node_id:
                return not (voter.store_id and store_id) or voter.store_id == store_id
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A membership and the index of its CONFIG entry; 0 for the group's initial one, which has no
    entry until the first leader writes it."""

    index: Index
    membership: Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLearner:
    """Add a learner; also how a voter returns whose disk was lost, after its removal."""

    member: Member


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoteLearner:
    """Make a learner a voter."""

    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMember:
    """Remove a voter or a learner, the leader too."""

    node_id: NodeId


MembershipChange: TypeAlias = AddLearner | PromoteLearner | RemoveMember


def make_membership(voters: Iterable[Member], learners: Iterable[Member] = ()) -> Membership:
    """Sort the members into a membership. Raises MembershipError."""
    return Membership(voters=_sorted(voters), learners=_sorted(learners))


def changed(membership: Membership, change: MembershipChange) -> Membership:
    """Return the membership after the change. Raises MembershipError where it can't be made."""
    match change:
        case AddLearner(member=member):
            if membership.member(member.node_id) is not None:
                raise MembershipError(f"{member.node_id} is a member already")
            return make_membership(membership.voters, (*membership.learners, member))
        case PromoteLearner(node_id=node_id):
            learner = membership.member(node_id)
            if learner is None or learner not in membership.learners:
                raise MembershipError(f"{node_id} is no learner")
            return make_membership(
                (*membership.voters, learner), _without(membership.learners, node_id)
            )
        case RemoveMember(node_id=node_id):
            if membership.member(node_id) is None:
                raise MembershipError(f"{node_id} is no member")
            if membership.voter_ids == (node_id,):
                raise MembershipError(f"{node_id} is the last voter")
            return make_membership(
                _without(membership.voters, node_id), _without(membership.learners, node_id)
            )
        case _:
            assert_never(change)


def encode_membership(membership: Membership) -> bytes:
    """Return the payload of a CONFIG entry (docs/FORMATS.md section 3)."""
    assert membership.voters, "a group without voters is none"
    payload: bytes = msgpack.packb(
        {"voters": _as_lists(membership.voters), "learners": _as_lists(membership.learners)}
    )
    return payload


def decode_membership(payload: bytes) -> Membership:
    """Decode such a payload; unknown keys are ignored. Raises MembershipError."""
    if len(payload) > _PAYLOAD_SIZE_MAX:
        raise MembershipError(f"{len(payload)} bytes are too many")
    try:
        fields = msgpack.unpackb(payload, raw=False, use_list=True, strict_map_key=True)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise MembershipError(f"{type(error).__name__}: {error}") from error
    if type(fields) is not dict:
        raise MembershipError("not a map")
    membership = make_membership(
        _decode_members(fields, "voters"), _decode_members(fields, "learners")
    )
    if not membership.voters:
        raise MembershipError("voters: none")
    return membership


def _sorted(members: Iterable[Member]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda member: member.node_id))


def _without(members: tuple[Member, ...], node_id: NodeId) -> tuple[Member, ...]:
    return tuple(member for member in members if member.node_id != node_id)


def _as_lists(members: tuple[Member, ...]) -> list[list[str]]:
    return [[member.node_id, member.address, member.store_id] for member in members]


def _decode_members(fields: Mapping[object, object], name: str) -> list[Member]:
    rows = fields.get(name)
    if type(rows) is not list:
        raise MembershipError(f"{name}: not a list")
    members: list[Member] = []
    for row in rows:
        if type(row) is not list or len(row) < 3 or not all(type(one) is str for one in row[:3]):
            raise MembershipError(f"{name}: {row!r:.80} is not a name, an address and a store")
        members.append(Member(node_id=NodeId(row[0]), address=row[1], store_id=row[2]))
    return members
