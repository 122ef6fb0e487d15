"""Raft messages as bytes: length-prefixed frames with a msgpack head and the payloads behind it.

Place in the data path: `raft.peers.transport` encodes what the core sends, `raft.peers.connection`
decodes what peers send. Pure.

A frame:

| offset | size | field |
|---|---|---|
| 0 | 12 | prefix (`raft.peers.frame_reader`): its N is at most FRAME_SIZE_BYTES_MAX |
| 12 | 4 | size H of the head |
| 16 | H | head: msgpack array [kind of message, sender, receiver, term, fields in order] |
| 16+H | N-4-H | payloads of the entries, back to back, or the data of a snapshot |

A message of a few names and numbers is its own head; the others have one in
`raft.peers.wire_heads`. Payloads stand outside of msgpack so that sending copies none of their
bytes and receiving copies them once.

Invariants: a decoded message is well-formed with every number in range, terms not falling along the
entries and none above the message's, each CONFIG entry a membership; anything else is a WireError
that names the field. A peer's bytes are never trusted, not even a proved peer's.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, get_args

import msgspec

from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    FetchEntries,
    FetchEntriesReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Introduce,
    PeerMessage,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from raft.peers.frame_reader import FRAME_SIZE_BYTES_MAX, FrameReader, WireError, frame_prefix
from raft.peers.wire_heads import (
    ENTRIES_COUNT_MAX,
    AppendEntriesHead,
    FetchEntriesReplyHead,
    Head,
    InstallSnapshotHead,
    IntroduceHead,
    payloads_of,
)

__all__ = ["FRAME_SIZE_BYTES_MAX", "FrameReader", "WireError", "decode_message", "encode_message"]

_HEAD_SIZE_MAX: Final = 4096 + 16 * ENTRIES_COUNT_MAX
_SIZE: Final = struct.Struct(">I")

_FlatMessage: TypeAlias = (
    RequestVote
    | RequestVoteReply
    | AppendEntriesReply
    | TimeoutNow
    | InstallSnapshotReply
    | FetchEntries
)
_AnyHead: TypeAlias = (
    _FlatMessage | AppendEntriesHead | InstallSnapshotHead | IntroduceHead | FetchEntriesReplyHead
)

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_AnyHead).decode
_BY_KIND: Final = {head.__struct_config__.tag: head for head in get_args(_AnyHead)}
_PLACE: Final = re.compile(r" - at `\$\[(\d+)\]")


def encode_message(message: PeerMessage) -> list[bytes]:
    """Return the frame as buffers to be written one after the other; payloads are not copied.

    Of a message with entries only the first ENTRIES_COUNT_MAX are sent: the rest counts as lost,
    and Raft, or the requester of entries, repeats it.
    """
    head: _AnyHead
    payloads: Sequence[bytes] = ()
    match message:
        case AppendEntries():
            head, payloads = AppendEntriesHead.of(message), payloads_of(message.entries)
        case InstallSnapshot():
            head, payloads = InstallSnapshotHead.of(message), (message.data,)
        case FetchEntriesReply():
            head, payloads = FetchEntriesReplyHead.of(message), payloads_of(message.entries)
        case Introduce():
            head = IntroduceHead.of(message)
        case _:
            head = message
    packed = _encode(head)
    packed = _SIZE.pack(len(packed)) + packed
    return [frame_prefix((packed, *payloads)) + packed, *payloads]


def decode_message(frame: memoryview) -> PeerMessage:
    """Decode the message of a frame (its prefix taken off). Raises WireError."""
    if len(frame) < _SIZE.size:
        raise WireError(f"frame: {len(frame)} bytes are too few")
    (head_size,) = _SIZE.unpack_from(frame)
    if not 0 < head_size <= min(len(frame) - _SIZE.size, _HEAD_SIZE_MAX):
        raise WireError(f"head size: {head_size} does not fit in a frame of {len(frame)} bytes")
    payload_offset = _SIZE.size + head_size
    head = _decode_head(frame[_SIZE.size : payload_offset])
    if isinstance(head, Head):
        return head.message(frame[payload_offset:])
    if payload_offset != len(frame):
        raise WireError(f"frame: {len(frame) - payload_offset} bytes behind the head")
    return head


def _decode_head(packed: memoryview) -> _AnyHead:
    try:
        head: _AnyHead = _decode(packed)
    except msgspec.ValidationError as error:
        raise WireError(_refusal(packed, str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"head: {type(error).__name__}: {error}") from error
    return head


def _refusal(packed: memoryview, text: str) -> str:
    """Name the message or the field that is wrong: msgspec says its place alone."""
    try:
        fields: Any = msgspec.msgpack.decode(packed)
    except (ValueError, RecursionError):  # what is behind the wrong field is ill-formed
        return f"head: {text}"
    if type(fields) is not list or not fields:
        return f"head: {text}"
    head = _BY_KIND.get(fields[0]) if type(fields[0]) is int else None
    if head is None:
        return f"kind of message: {fields[0]!r:.40} is unknown"
    found = _PLACE.search(text)
    if found is None:
        return f"{head.__name__.removesuffix('Head')}: {text}"
    place = int(found[1])
    name = head.__struct_fields__[place - 1]
    return f"{name}: {fields[place]!r:.40}: {text[: found.start()]}"
