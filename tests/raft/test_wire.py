"""Raft frames: what is encoded is decoded, anything else is a WireError and nothing else."""

from __future__ import annotations

import contextlib
import re
import struct

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raft.membership import Configuration, Member, encode_membership, make_membership
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    FetchEntries,
    FetchEntriesReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Introduce,
    LogBase,
    NodeId,
    PeerMessage,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from raft.peers.frame_reader import PREFIX_SIZE, frame_prefix
from raft.peers.wire import FrameReader, WireError, decode_message, encode_message

numbers = st.integers(0, 2**63 - 1)
names = st.text(min_size=1, max_size=30).map(NodeId)


members = st.builds(
    Member,
    node_id=names,
    address=st.text(max_size=30),
    store_id=st.sampled_from(["", "0123456789abcdef" * 2, "f" * 32]),
)
store_ids = st.sampled_from(["0123456789abcdef" * 2, "f" * 32])
memberships = (
    st.lists(members, min_size=1, max_size=14, unique_by=lambda member: member.node_id)
    .flatmap(lambda all_: st.tuples(st.just(all_), st.integers(1, min(7, len(all_)))))
    .map(lambda drawn: make_membership(drawn[0][: drawn[1]], drawn[0][drawn[1] :][:7]))
)


def entries_from(draw: st.DrawFn, index: int, terms: list[int]) -> tuple[Entry, ...]:
    entries = []
    for place, term in enumerate(terms):
        kind = draw(st.sampled_from(EntryKind))
        payload = draw(st.binary(max_size=200))
        if kind is EntryKind.CONFIG:
            payload = encode_membership(draw(memberships))
        entries.append(Entry(index=index + place, term=term, kind=kind, payload=payload))
    return tuple(entries)


@st.composite
def append_entries(draw: st.DrawFn) -> AppendEntries:
    terms = sorted(draw(st.lists(numbers, min_size=2, max_size=8)))
    prev_log_index = draw(st.integers(0, 2**62))
    return AppendEntries(
        sender=draw(names),
        receiver=draw(names),
        term=terms[-1],
        prev_log_index=prev_log_index,
        prev_log_term=terms[0],
        leader_commit=draw(numbers),
        read_round=draw(numbers),
        entries=entries_from(draw, prev_log_index + 1, terms[1:-1]),
    )


@st.composite
def fetch_replies(draw: st.DrawFn) -> FetchEntriesReply:
    terms = sorted(draw(st.lists(numbers, max_size=5)))
    return FetchEntriesReply(
        sender=draw(names),
        receiver=draw(names),
        request_id=draw(numbers),
        entries=entries_from(draw, draw(st.integers(1, 2**62)), terms),
        chain_before=draw(st.integers(0, 2**32 - 1)),
        missing=draw(st.booleans()),
        commit_index=draw(numbers),
    )


@st.composite
def install_snapshots(draw: st.DrawFn) -> InstallSnapshot:
    base_term, term = sorted(draw(st.tuples(numbers, numbers)))
    snapshot_index = draw(numbers)
    data = draw(st.binary(max_size=300))
    offset = draw(st.integers(0, 2**62))
    return InstallSnapshot(
        sender=draw(names),
        receiver=draw(names),
        term=term,
        base=LogBase(
            index=draw(st.integers(0, snapshot_index)),
            term=base_term,
            position=draw(numbers),
            chain=draw(st.integers(0, 2**32 - 1)),
        ),
        configuration=Configuration(
            index=draw(st.integers(0, snapshot_index)), membership=draw(memberships)
        ),
        snapshot_index=snapshot_index,
        snapshot_size=offset + len(data) + draw(st.integers(0, 2**20)),
        offset=offset,
        data=data,
        crc=draw(st.integers(0, 2**32 - 1)),
    )


messages = st.one_of(
    append_entries(),
    st.builds(
        AppendEntriesReply,
        sender=names,
        receiver=names,
        term=numbers,
        success=st.booleans(),
        match_index=numbers,
        rejected_prev_index=numbers,
        conflict_index=numbers,
        conflict_term=numbers,
        read_round=numbers,
        writable=st.booleans(),
    ),
    st.builds(
        RequestVote,
        sender=names,
        receiver=names,
        term=numbers,
        last_log_index=numbers,
        last_log_term=numbers,
        pre_vote=st.booleans(),
        leadership_transfer=st.booleans(),
    ),
    st.builds(
        RequestVoteReply,
        sender=names,
        receiver=names,
        term=numbers,
        granted=st.booleans(),
        pre_vote=st.booleans(),
    ),
    st.builds(TimeoutNow, sender=names, receiver=names, term=numbers),
    install_snapshots(),
    st.builds(
        InstallSnapshotReply,
        sender=names,
        receiver=names,
        term=numbers,
        base_index=numbers,
        snapshot_index=numbers,
        next_offset=numbers,
        installed=st.booleans(),
    ),
    st.builds(
        Introduce,
        sender=names,
        receiver=names,
        store_id=store_ids,
        roster=st.lists(st.tuples(names, store_ids), max_size=7).map(tuple),
        configuration=st.none() | st.builds(Configuration, index=numbers, membership=memberships),
    ),
    st.builds(
        FetchEntries,
        sender=names,
        receiver=names,
        request_id=numbers,
        first_index=numbers,
        last_index=numbers,
    ),
    fetch_replies(),
)


def framed(message: PeerMessage) -> bytes:
    return b"".join(encode_message(message))


def body(message: PeerMessage) -> memoryview:
    return memoryview(framed(message))[PREFIX_SIZE:]


def head_of(*fields: object, payloads: bytes = b"") -> memoryview:
    head = msgpack.packb(fields)
    return memoryview(struct.pack(">I", len(head)) + head + payloads)


# An InstallSnapshot behind its kind: base 5@1, snapshot 7 of 9 bytes, n1 the one voter.
INSTALL_HEAD: tuple[object, ...] = (
    "a",
    "b",
    1,
    5,
    1,
    100,
    77,
    2,
    ["n1", "h:1", ""],
    [],
    7,
    9,
    0,
    0,
)


def test_golden_bytes() -> None:
    entry = Entry(index=8, term=3, kind=EntryKind.DATA, payload=b"abc")
    message = AppendEntries(
        sender=NodeId("n0"),
        receiver=NodeId("n1"),
        term=3,
        prev_log_index=7,
        prev_log_term=2,
        entries=(entry,),
        leader_commit=6,
        read_round=1,
    )
    assert framed(message).hex(" ") == (
        "00 00 00 18 7e 2b 81 f3 8c 66 77 28 "
        "00 00 00 11 99 03 a2 6e 30 a2 6e 31 03 07 02 06 01 93 03 02 03 61 62 63"
    )


A_TO_B = {"sender": NodeId("a"), "receiver": NodeId("b")}


@pytest.mark.parametrize(
    ("message", "head"),
    [
        (
            RequestVote(
                **A_TO_B,
                term=1,
                last_log_index=2,
                last_log_term=3,
                pre_vote=True,
                leadership_transfer=False,
            ),
            (1, "a", "b", 1, 2, 3, True, False),
        ),
        (
            RequestVoteReply(**A_TO_B, term=1, granted=True, pre_vote=False),
            (2, "a", "b", 1, True, False),
        ),
        (
            AppendEntriesReply(
                **A_TO_B,
                term=1,
                success=True,
                match_index=2,
                rejected_prev_index=3,
                conflict_index=4,
                conflict_term=5,
                read_round=6,
                writable=False,
            ),
            (4, "a", "b", 1, True, 2, 3, 4, 5, 6, False),
        ),
        (TimeoutNow(**A_TO_B, term=1), (5, "a", "b", 1)),
        (
            InstallSnapshotReply(
                **A_TO_B,
                term=1,
                base_index=2,
                snapshot_index=3,
                next_offset=4,
                installed=True,
            ),
            (7, "a", "b", 1, 2, 3, 4, True),
        ),
        (
            FetchEntries(**A_TO_B, request_id=1, first_index=2, last_index=3),
            (9, "a", "b", 1, 2, 3),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_field_that_moves_in_its_class_is_a_change_of_format(
    message: PeerMessage, head: tuple[object, ...]
) -> None:
    assert bytes(body(message)) == bytes(head_of(*head))


@settings(deadline=None)
@given(messages)
def test_what_is_encoded_is_decoded(message: PeerMessage) -> None:
    assert decode_message(body(message)) == message


def test_payloads_are_not_copied_when_sent() -> None:
    entry = Entry(index=1, term=1, kind=EntryKind.DATA, payload=bytes(1000))
    message = AppendEntries(
        sender=NodeId("a"),
        receiver=NodeId("b"),
        term=1,
        prev_log_index=0,
        prev_log_term=0,
        entries=(entry,),
        leader_commit=0,
        read_round=0,
    )
    assert encode_message(message)[1] is entry.payload


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_garbage_is_a_wire_error(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_message(memoryview(data))


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(2**63), 2**64 - 1),
            st.floats(),
            st.text(max_size=5),
            st.binary(max_size=5),
            st.lists(st.integers(-5, 5), max_size=4),
        ),
        max_size=14,
    ),
    st.integers(0, 11),
    st.binary(max_size=10),
)
def test_wrong_fields_are_wire_errors_or_messages(
    fields: list[object], kind: int, rest: bytes
) -> None:
    frame = head_of(kind, *fields, payloads=rest)
    with contextlib.suppress(WireError):
        assert body(decode_message(frame)) == frame


@settings(deadline=None)
@given(messages, st.data())
def test_a_flipped_bit_is_a_wire_error_or_another_message(
    message: PeerMessage, data: st.DataObject
) -> None:
    frame = bytearray(body(message))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(WireError):
        assert decode_message(memoryview(frame)) != message


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (head_of(11, "a", "b", 1), "kind of message: 11 is unknown"),
        (head_of(5, "a", "b"), "TimeoutNow: Expected `array` of at least length 4, got 3"),
        (head_of(5, "", "b", 1), "sender: '': Expected `str` of length >= 1"),
        (head_of(5, "a", 7, 1), "receiver: 7: Expected `str`, got `int`"),
        (head_of(5, "a", "b", -1), "term: -1: Expected `int` >= 0"),
        (head_of(5, "a", "b", True), "term: True: Expected `int`, got `bool`"),
        (head_of(5, "a", "b", 1, payloads=b"x"), "frame: 1 bytes behind the head"),
        (head_of(2, "a", "b", 1, 1, True), "granted: 1: Expected `bool`, got `int`"),
        (head_of(3, "a", "b", 1, 0, 2, 0, 0, []), "prev_log_term: 2 is above term 1"),
        (head_of(3, "a", "b", 1, 0, 0, 0, 0, [1]), "entries: not a list of term, kind and size"),
        (head_of(3, "a", "b", 1, 0, 0, 0, 0, [2, 2, 0]), "entry 1 term: 2 is not in 0..1"),
        (head_of(3, "a", "b", 1, 4, 1, 0, 0, [0, 2, 0]), "entry 5 term: 0 is not in 1..1"),
        (head_of(3, "a", "b", 1, 0, 0, 0, 0, [1, 3, 0]), "entry 1 kind: 3 is unknown"),
        (head_of(3, "a", "b", 1, 0, 0, 0, 0, [1, 2, 1]), "entry 1 size: 1 does not fit"),
        (
            head_of(3, "a", "b", 1, 0, 0, 0, 0, [1, 2, 1, 1, 2, -1, 1, 2, 1], payloads=b"x"),
            "entry 2 size: -1 does not fit",
        ),
        (
            head_of(3, "a", "b", 1, 0, 0, 0, 0, [1, 2, 1], payloads=b"xy"),
            "frame: 1 bytes behind the last entry",
        ),
        (head_of(3, "a", "b", 1, 0, 0, 0, 0, [1, 1, 0]), "entry 1 membership: "),
        (head_of(6, *INSTALL_HEAD[:3], 0, 2, *INSTALL_HEAD[5:]), "base term: 2 is above term 1"),
        (head_of(6, *INSTALL_HEAD[:10], 3, 9, 0, 0), "snapshot_index: 3 is before what it covers"),
        (head_of(6, *INSTALL_HEAD, payloads=bytes(10)), "data: it ends behind the snapshot's 9"),
        (head_of(6, *INSTALL_HEAD[:8], [], *INSTALL_HEAD[9:]), "voters: none"),
        (head_of(6, *INSTALL_HEAD[:8], ["a", "b"], *INSTALL_HEAD[9:]), "voters: not a list of"),
        (head_of(6, *INSTALL_HEAD[:9], ["n1", "", ""], *INSTALL_HEAD[10:]), "membership: a name"),
        (head_of(8, "a", "b", "f" * 32, ["n1"], None, [], []), "roster: not a list of at most 7"),
        (head_of(8, "a", "b", "s", [], None, [], []), "store_id: 's' is not 32 hex digits"),
        (head_of(8, "a", "b", "f" * 32, [], 1, [], []), "voters: none"),
        (head_of(8, "a", "b", "f" * 32, [], None, 1, []), "voters: 1: Expected `array`, got `int`"),
        (head_of(8, "a", "b", "f" * 32, [], None, ["x" * 256], []), "voters: ['xxx"),
        (head_of(True, "a", "b", 1, True, True), "kind of message: True is unknown"),
        (
            head_of(10, "a", "b", 1, 2**32, False, 0, 0, []),
            "chain_before: 4294967296: Expected `int` <=",
        ),
        (head_of(10, "a", "b", 1, 0, False, 0, 1, []), "first_index: 1 with 0 entries"),
        (memoryview(b"\0\0\0\x09\x90"), "head size: 9 does not fit"),
        (memoryview(b"\0"), "frame: 1 bytes are too few"),
        (memoryview(b"\0\0\0\x01\x81"), "head: "),
    ],
)
def test_the_error_names_the_field(frame: memoryview, text: str) -> None:
    with pytest.raises(WireError, match=re.escape(text)):
        decode_message(frame)


def read_all(reader: FrameReader, stream: bytes, sizes: list[int]) -> list[bytes]:
    """Feed the stream in pieces of the given sizes, then the rest."""
    frames: list[bytes] = []
    while stream:
        buffer = reader.get_buffer()
        assert len(buffer) > 0
        count = min(len(stream), len(buffer), sizes.pop(0) if sizes else len(stream))
        buffer[:count] = stream[:count]
        stream = stream[count:]
        frames += [bytes(frame) for frame in reader.received(count)]
    return frames


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 5, 1000, 200_000, 300_000, 700_000]), max_size=6),
    st.lists(st.integers(1, 400_000), max_size=20),
)
def test_frames_split_anywhere_come_out_whole(frames: list[int], sizes: list[int]) -> None:
    bodies = [bytes([place + 1]) * size for place, size in enumerate(frames)]
    stream = b"".join(frame_prefix([part]) + part for part in bodies)
    assert read_all(FrameReader(), stream, sizes) == bodies


@settings(deadline=None)
@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_a_flipped_bit_is_seen_before_it_costs_a_frame(
    sent: list[PeerMessage], data: st.DataObject
) -> None:
    """Wherever it is: of a size too, which would swallow what comes behind it."""
    stream = bytearray(b"".join(framed(one) for one in sent))
    place = data.draw(st.integers(0, len(stream) - 1))
    stream[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(WireError):
        read_all(FrameReader(), bytes(stream), [])


def test_an_oversized_frame_is_refused_by_its_prefix() -> None:
    reader = FrameReader(1000)
    with pytest.raises(WireError, match="frame of 1001 bytes, at most 1000 are allowed"):
        read_all(reader, struct.pack(">I", 1001), [])
