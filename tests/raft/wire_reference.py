"""A second decoder of the frames between nodes, written by hand from docs/FORMATS.md section 10.

It shares with `raft.peers.wire` the classes of the messages and the check of a CONFIG entry's
payload, and nothing else: it reads heads by msgpack and knows each field's type from `KINDS`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack

from raft.membership import (
    Configuration,
    Member,
    Membership,
    MembershipError,
    decode_membership,
)
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

__all__ = ["KINDS", "Refusal", "reference_decode"]

_MEMBERS = "configuration_index:{} voters:texts learners:texts"
KINDS: dict[int, tuple[type[Any], list[list[str]]]] = {
    kind: (message, [field.split(":") for field in f"sender:name receiver:name {fields}".split()])
    for kind, message, fields in (
        (
            1,
            RequestVote,
            "term:number last_log_index:number last_log_term:number pre_vote:flag "
            "leadership_transfer:flag",
        ),
        (2, RequestVoteReply, "term:number granted:flag pre_vote:flag"),
        (
            3,
            AppendEntries,
            "term:number prev_log_index:number prev_log_term:number leader_commit:number "
            "read_round:number entries:table",
        ),
        (
            4,
            AppendEntriesReply,
            "term:number success:flag match_index:number rejected_prev_index:number "
            "conflict_index:number conflict_term:number read_round:number writable:flag",
        ),
        (5, TimeoutNow, "term:number"),
        (
            6,
            InstallSnapshot,
            "term:number base_index:number base_term:number base_position:number base_chain:crc "
            f"{_MEMBERS.format('number')} snapshot_index:number snapshot_size:number "
            "offset:number crc:number",
        ),
        (
            7,
            InstallSnapshotReply,
            "term:number base_index:number snapshot_index:number next_offset:number installed:flag",
        ),
        (8, Introduce, f"store_id:text roster:texts {_MEMBERS.format('index')}"),
        (9, FetchEntries, "request_id:number first_index:number last_index:number"),
        (
            10,
            FetchEntriesReply,
            "request_id:number chain_before:crc missing:flag commit_index:number "
            "first_index:number entries:table",
        ),
    )
}
"""Class and fields of each kind, `name:type`, in the order of the wire."""


def _is_int(value: object, high: int) -> bool:
    return type(value) is int and 0 <= value <= high


def _is_text(value: object) -> bool:
    return type(value) is str and len(value) <= 255


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "number": lambda value: _is_int(value, 2**63 - 1),
    "crc": lambda value: _is_int(value, 2**32 - 1),
    "flag": lambda value: type(value) is bool,
    "name": lambda value: _is_text(value) and value != "",
    "text": _is_text,
    "index": lambda value: value is None or _is_int(value, 2**63 - 1),
    "texts": lambda value: type(value) is list and len(value) <= 21 and all(map(_is_text, value)),
    "table": lambda value: type(value) is list and all(type(one) is int for one in value),
}


@dataclass(frozen=True)
class Refusal:
    """`names`: of all fields that are wrong by themselves; none where the whole is wrong."""

    names: frozenset[str] = frozenset()


class _Refused(Exception):
    pass


def reference_decode(frame: bytes) -> PeerMessage | Refusal:
    """Return the message of a frame, or which of its fields are wrong."""
    if len(frame) < 4:
        return Refusal()
    (head_size,) = struct.unpack_from(">I", frame)
    head, payloads = frame[4 : 4 + head_size], frame[4 + head_size :]
    if not head or len(head) != head_size:
        return Refusal()
    try:
        fields = msgpack.unpackb(head, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException):
        return Refusal()
    if type(fields) is not list or not fields or type(fields[0]) is not int:
        return Refusal()
    if fields[0] not in KINDS:
        return Refusal()
    message, types = KINDS[fields[0]]
    values = dict(zip((name for name, _ in types), fields[1:], strict=False))
    wrong = {name for name, kind in types if name in values and not _CHECKS[kind](values[name])}
    if wrong or len(fields) - 1 != len(types):
        return Refusal(frozenset(wrong))
    try:
        return _message(message, values, payloads)
    except (_Refused, MembershipError):
        return Refusal()


def _demand(holds: bool) -> None:
    if not holds:
        raise _Refused


def _message(message: type[Any], values: dict[str, Any], payloads: bytes) -> PeerMessage:
    if message is AppendEntries:
        _demand(values["prev_log_term"] <= values["term"])
        values["entries"] = _entries(
            values, payloads, values["prev_log_index"] + 1, values["prev_log_term"], values["term"]
        )
    elif message is FetchEntriesReply:
        first = values.pop("first_index")
        values["entries"] = _entries(values, payloads, first, 0, 2**63 - 1)
        _demand((first == 0) == (values["entries"] == ()))
    elif message is InstallSnapshot:
        base = {name: values.pop(f"base_{name}") for name in ("index", "term", "position", "chain")}
        values["base"] = LogBase(**base)
        values["configuration"] = _configuration(values)
        values["data"] = payloads
        _demand(base["term"] <= values["term"])
        _demand(base["index"] <= values["snapshot_index"])
        _demand(values["configuration"].index <= values["snapshot_index"])
        _demand(len(payloads) <= 16 << 20)
        _demand(values["offset"] + len(payloads) <= values["snapshot_size"])
    else:
        _demand(payloads == b"")
    if message is Introduce:
        values["configuration"] = _configuration(values)
        roster = _rows(values["roster"], 2, 7)
        _demand(all(name != "" for name, _ in roster))
        values["roster"] = tuple((NodeId(name), store) for name, store in roster)
        stores = [values["store_id"], *(store for _, store in roster)]
        _demand(all(re.fullmatch("[0-9a-f]{32}", store) is not None for store in stores))
    decoded: PeerMessage = message(**values)
    return decoded


def _entries(
    values: dict[str, Any], payloads: bytes, index: int, term_min: int, term_max: int
) -> tuple[Entry, ...]:
    table = values["entries"]
    _demand(len(table) % 3 == 0 and len(table) <= 3 * 65_536)
    entries = []
    for place in range(0, len(table), 3):
        term, kind, size = table[place : place + 3]
        _demand(term_min <= term <= term_max)
        _demand(kind in (0, 1, 2))
        _demand(0 <= size <= len(payloads))
        payload, payloads = payloads[:size], payloads[size:]
        if kind == 1:
            decode_membership(payload)
        entries.append(Entry(index=index, term=term, kind=EntryKind(kind), payload=payload))
        term_min, index = term, index + 1
    _demand(payloads == b"")
    return tuple(entries)


def _rows(texts: list[str], size: int, count_max: int) -> list[list[str]]:
    _demand(len(texts) % size == 0 and len(texts) <= size * count_max)
    _demand(all(len(text.encode()) <= 255 for text in texts))
    return [texts[place : place + size] for place in range(0, len(texts), size)]


def _configuration(values: dict[str, Any]) -> Configuration | None:
    index, voters, learners = (
        values.pop(name) for name in ("configuration_index", "voters", "learners")
    )
    if index is None:
        return None
    _demand(voters != [])
    members = [
        tuple(
            Member(node_id=NodeId(name), address=address, store_id=store)
            for name, address, store in _rows(texts, 3, 7)
        )
        for texts in (voters, learners)
    ]
    return Configuration(index=index, membership=Membership(voters=members[0], learners=members[1]))
