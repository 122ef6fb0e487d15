"""Memberships: single changes, their encoding, and which one is in force along a log."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raft.core.configurations import Configurations
from raft.core.quorum import majority_count
from raft.membership import (
    AddLearner,
    Configuration,
    Member,
    Membership,
    MembershipChange,
    MembershipError,
    PromoteLearner,
    RemoveMember,
    changed,
    decode_membership,
    encode_membership,
    make_membership,
)
from raft.messages import Entry, EntryKind, NodeId
from tests.raft.core_group import MemoryStorage

NAMES = [NodeId(f"n{number}") for number in range(1, 9)]
STORE_ID = "0123456789abcdef" * 2

names = st.sampled_from(NAMES)
changes = st.one_of(
    st.builds(
        AddLearner,
        member=st.builds(Member, node_id=names, store_id=st.sampled_from(["", STORE_ID])),
    ),
    st.builds(PromoteLearner, node_id=names),
    st.builds(RemoveMember, node_id=names),
)


def of(*voters: str, learners: str = "") -> Membership:
    return make_membership(
        (Member(node_id=NodeId(name), address=f"{name}:1") for name in voters),
        (Member(node_id=NodeId(name), address=f"{name}:1") for name in learners.split()),
    )


def config_entry(index: int, membership: Membership) -> Entry:
    payload = encode_membership(membership)
    return Entry(index=index, term=1, kind=EntryKind.CONFIG, payload=payload)


# Single changes.


@settings(deadline=None)
@given(st.lists(changes, max_size=30))
def test_a_change_moves_at_most_one_voter_and_majorities_share_one(
    walk: list[MembershipChange],
) -> None:
    membership = of("n1", "n2", "n3")
    for change in walk:
        before = set(membership.voter_ids)
        with contextlib.suppress(MembershipError):
            membership = changed(membership, change)
        after = set(membership.voter_ids)
        assert after
        assert len(before ^ after) <= 1
        assert majority_count(len(before)) + majority_count(len(after)) > len(before | after)
        assert decode_membership(encode_membership(membership)) == membership


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (
            AddLearner(member=Member(node_id=NodeId("n4"), address="n4:1")),
            of("n1", "n2", learners="n3 n4"),
        ),
        (PromoteLearner(node_id=NodeId("n3")), of("n1", "n2", "n3")),
        (RemoveMember(node_id=NodeId("n3")), of("n1", "n2")),
        (RemoveMember(node_id=NodeId("n1")), of("n2", learners="n3")),
    ],
)
def test_what_a_change_makes(change: MembershipChange, after: Membership) -> None:
    assert changed(of("n1", "n2", learners="n3"), change) == after


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (AddLearner(member=Member(node_id=NodeId("n1"))), "n1 is a member already"),
        (AddLearner(member=Member(node_id=NodeId("n2"))), "n2 is a member already"),
        (PromoteLearner(node_id=NodeId("n1")), "n1 is no learner"),
        (PromoteLearner(node_id=NodeId("n9")), "n9 is no learner"),
        (RemoveMember(node_id=NodeId("n9")), "n9 is no member"),
        (RemoveMember(node_id=NodeId("n1")), "n1 is the last voter"),
    ],
)
def test_what_can_not_be_done(change: MembershipChange, reason: str) -> None:
    with pytest.raises(MembershipError, match=reason):
        changed(of("n1", learners="n2"), change)


def test_there_are_at_most_seven_of_each() -> None:
    full = make_membership(Member(node_id=name) for name in NAMES[:7])
    with pytest.raises(MembershipError, match="voters: 8, at most 7"):
        make_membership(Member(node_id=name) for name in NAMES)
    with_learner = changed(full, AddLearner(member=Member(node_id=NAMES[7])))
    with pytest.raises(MembershipError, match="voters: 8, at most 7"):
        changed(with_learner, PromoteLearner(node_id=NAMES[7]))


# What a member and a membership may be.


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"node_id": ""}, "not 1 to 255 bytes"),
        ({"node_id": "é" * 128}, "not 1 to 255 bytes"),
        ({"node_id": "n", "address": "x" * 256}, "address of n: more than 255 bytes"),
        ({"node_id": "n", "store_id": "AB" * 16}, "is not 32 hex digits"),
        ({"node_id": "n", "store_id": "ab"}, "is not 32 hex digits"),
    ],
)
def test_a_member_is_checked(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(MembershipError, match=reason):
        Member(
            node_id=NodeId(fields["node_id"]),
            address=fields.get("address", ""),
            store_id=fields.get("store_id", ""),
        )


def test_a_membership_is_checked() -> None:
    one, two = Member(node_id=NodeId("n1")), Member(node_id=NodeId("n2"))
    with pytest.raises(MembershipError, match="not in the order"):
        Membership(voters=(two, one))
    with pytest.raises(MembershipError, match="stands twice"):
        Membership(voters=(one,), learners=(one,))
    with pytest.raises(MembershipError, match="stands twice"):
        Membership(voters=(one, one))


# The payload.


def test_the_payload_is_drawn_in_the_formats() -> None:
    membership = make_membership(
        [Member(node_id=NodeId("n1"), address="h:1", store_id=STORE_ID)],
        [Member(node_id=NodeId("n2"))],
    )
    assert msgpack.unpackb(encode_membership(membership)) == {
        "voters": [["n1", "h:1", STORE_ID]],
        "learners": [["n2", "", ""]],
    }


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "Unpack"),
        (b"\xc1", "FormatError"),
        (msgpack.packb([]), "not a map"),
        (msgpack.packb({}), "voters: not a list"),
        (msgpack.packb({"voters": [["n1", "", ""]]}), "learners: not a list"),
        (msgpack.packb({"voters": [], "learners": []}), "voters: none"),
        (msgpack.packb({"voters": [["n1"]], "learners": []}), "is not a name"),
        (msgpack.packb({"voters": [["n1", 1, ""]], "learners": []}), "is not a name"),
        (msgpack.packb({"voters": [b"n1"], "learners": []}), "is not a name"),
        (bytes(1 << 17), "too many"),
    ],
)
def test_a_payload_is_checked(payload: bytes, reason: str) -> None:
    with pytest.raises(MembershipError, match=reason):
        decode_membership(payload)


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_garbage_is_a_membership_error(payload: bytes) -> None:
    with pytest.raises(MembershipError):
        decode_membership(payload)


# Which one is in force.

FIRST = Configuration(index=0, membership=of("n1"))


def test_the_newest_of_the_log_is_in_force() -> None:
    entries = [config_entry(1, of("n1", "n2")), config_entry(2, of("n1", "n2", "n3"))]
    known = Configurations(FIRST, MemoryStorage(entries))
    assert known.in_force.index == 2
    assert known.replaced is not None
    assert known.replaced.membership == of("n1", "n2")
    assert [known.at(index).index for index in (0, 1, 2, 9)] == [0, 1, 2, 2]


def test_a_truncation_takes_back_what_it_reaches_and_never_the_first() -> None:
    known = Configurations(FIRST, MemoryStorage())
    known.append([config_entry(3, of("n1", "n2")), config_entry(5, of("n2"))])
    known.truncate_from(4)
    assert known.in_force.index == 3
    assert known.replaced == FIRST
    known.truncate_from(1)
    assert known.in_force == FIRST
    assert known.replaced is None


def test_a_snapshots_configuration_outlives_older_entries_of_the_log() -> None:
    """It may be newer than the log's end; the entries up to it come later."""
    known = Configurations(FIRST, MemoryStorage())
    known.append([config_entry(2, of("n1", "n2"))])
    snapshot = Configuration(index=7, membership=of("n1", "n2", "n3"))
    known.install(snapshot)
    assert known.in_force == snapshot
    assert known.replaced is None

    known.append([config_entry(6, of("n1", "n4"))])
    assert known.in_force == snapshot
    known.append([config_entry(7, snapshot.membership), config_entry(9, of("n3"))])
    assert known.in_force.index == 9
    assert [known.at(index).index for index in (7, 8, 9)] == [7, 7, 9]
    known.truncate_from(8)
    assert known.in_force == snapshot


def test_only_so_many_are_kept() -> None:
    known = Configurations(FIRST, MemoryStorage())
    for index in range(1, 201):
        known.append([config_entry(index, of("n1", "n2") if index % 2 else of("n1"))])
    assert known.in_force.index == 200
    assert known.at(150).index == 150
    with pytest.raises(AssertionError, match="not known any more"):
        known.at(1)


def test_a_log_with_many_is_read_from_its_end() -> None:
    entries = [config_entry(index, of("n1")) for index in range(1, 101)]
    storage = MemoryStorage(entries)
    known = Configurations(FIRST, storage)
    assert known.in_force.index == 100
    assert known.at(40).index == 40
    assert storage.reads_count <= 70
