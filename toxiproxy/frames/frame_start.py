"""The first bytes of a remoting frame: its size, and whether it can be a frame at all.

Place in the data path: `toxiproxy.frames.frame_watch` and `toxiproxy.frames.frame_splitter` measure
every frame by it. The header is decoded by the codec that brokers and clients use.

A stream is told from other protocols by its first frame: a length within the protocol's maximum, a
known serialize type, a header that fits, and one that begins as JSON or is as long as the fixed
part of the ROCKETMQ form. Later frames are held to the first three only, since a proxy may have
damaged their headers.

Source: RocketMQ RemotingCommand; `remoting.protocol.frame`.
"""

import struct
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from remoting.errors import FrameError
from remoting.protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, SerializeType
from remoting.protocol.frame import FRAME_SIZE_MAX, decode_codes

__all__ = [
    "AT_BOUNDARY",
    "PREFIX_SIZE",
    "START_SIZE",
    "FrameHead",
    "Measure",
    "StreamPosition",
    "header_size_of",
    "measure",
    "read_head",
]

PREFIX_SIZE: Final = 8
START_SIZE: Final = PREFIX_SIZE + 1  # with the first byte of the header
_PREFIX: Final = struct.Struct(">II")
_HEADER_SIZE: Final = 0xFF_FFFF
_BINARY_HEADER_SIZE_MIN: Final = 21
_SERIALIZE_TYPES: Final = frozenset(SerializeType)
_LENGTH_MIN: Final = 4
_LENGTH_MAX: Final = (1 << 31) - 1


class Measure(Enum):
    """Finding from the first bytes of a frame."""

    UNFINISHED = auto()
    FRAME = auto()
    OVERSIZED = auto()
    FOREIGN = auto()


class FrameHead(NamedTuple):
    """Fields of a header that a toxic needs; `code` is None where the header can't be decoded."""

    code: int | None
    opaque: int = 0
    is_response: bool = False
    is_oneway: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """Place in a frame at which a stream stands.

    `prefix` holds the bytes of a frame that began but can't be measured yet; `left` counts the
    bytes that a measured one still lacks. Not both are set. `begun` says that the stream has
    carried a frame, `foreign` that it carries something else.
    """

    prefix: bytes = b""
    left: int = 0
    begun: bool = False
    foreign: bool = False


AT_BOUNDARY: Final = StreamPosition()


def measure(start: bytes | bytearray, at: int = 0, *, begun: bool) -> tuple[Measure, int]:
    """Return what a frame's first bytes, from `at` on, say, and its size where they say it.

    `begun` is whether the stream has carried a frame before: only then can one be oversized.
    """
    there = len(start) - at
    if there < PREFIX_SIZE:
        # The smallest and the largest length that may yet come: one byte can be enough to tell.
        known = bytes(start[at : at + 4])
        least = int.from_bytes(known.ljust(4, b"\0"))
        most = int.from_bytes(known.ljust(4, b"\xff"))
        is_possible = most >= _LENGTH_MIN and least <= _length_max(begun=begun)
        return (Measure.UNFINISHED if is_possible else Measure.FOREIGN), 0
    length, word = _PREFIX.unpack_from(start, at)
    header_size = word & _HEADER_SIZE
    if (
        not _LENGTH_MIN <= length <= _length_max(begun=begun)
        or word >> 24 not in _SERIALIZE_TYPES
        or header_size > length - 4
    ):
        return Measure.FOREIGN, 0
    if not begun:
        if word >> 24 == SerializeType.ROCKETMQ:
            if header_size < _BINARY_HEADER_SIZE_MIN:
                return Measure.FOREIGN, 0
        elif header_size == 0:
            return Measure.FOREIGN, 0
        elif there < START_SIZE:
            return Measure.UNFINISHED, 0
        elif start[at + PREFIX_SIZE] != ord("{"):
            return Measure.FOREIGN, 0
    return Measure.OVERSIZED if length > FRAME_SIZE_MAX - 4 else Measure.FRAME, 4 + length


def header_size_of(start: bytes | bytearray, at: int = 0) -> int:
    """Return the size of the header of the frame that begins at `at`."""
    return int(_PREFIX.unpack_from(start, at)[1]) & _HEADER_SIZE


def read_head(start: bytes | bytearray, at: int = 0) -> FrameHead:
    """Decode the header of the frame that begins at `at`; `start` holds all of the header."""
    header_begin = at + PREFIX_SIZE
    header = bytes(start[header_begin : header_begin + header_size_of(start, at)])
    try:
        code, opaque, flag = decode_codes(start[at + 4], header)
    except FrameError:
        return FrameHead(None)
    return FrameHead(code, opaque, flag & FLAG_RESPONSE != 0, flag & FLAG_ONEWAY != 0)


def _length_max(*, begun: bool) -> int:
    return _LENGTH_MAX if begun else FRAME_SIZE_MAX - 4
