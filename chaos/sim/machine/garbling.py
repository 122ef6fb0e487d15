"""Garble the frames between two machines as a broken middlebox would.

Place in the data path: `chaos.sim.machine.tcp` passes what a process writes, where the nemesis has
requested it, and delivers the result. Pure.

Frames of Raft have a checksum: whatever bit of them is flipped, the receiver must detect it. Those
of RocketMQ have none, so that a flipped bit of a body is a message like any other: in them only
what no decoder may accept is changed (a length beyond all bounds, an unknown serialization, a
header that is no JSON). Either kind may announce a huge frame, or end in the middle.

Invariant: for bytes that do not begin with a frame the result is None; they are left alone.
"""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass
from typing import Final

from raft.peers.frame_reader import PREFIX_SIZE

__all__ = ["Garbled", "garbled"]

_LENGTH: Final = struct.Struct(">I")
_SUM_AT: Final = PREFIX_SIZE - 4
_HUGE: Final = (1 << 28, (1 << 31) - 1, (1 << 32) - 1)
_REMOTING_HEAD: Final = 8
_TYPE_AT: Final = 4  # of the serialization, behind the length
_JSON: Final = 0


@dataclass(frozen=True, slots=True)
class Garbled:
    data: bytes
    is_cut: bool
    """Whether the connection breaks behind it; else the receiver has to close it."""
    kind: str


def garbled(data: bytes, rng: random.Random) -> Garbled | None:
    """Garble `data`, which a process wrote at once; return None if it is left alone."""
    if not (starts := _frames_of_raft(data) or _frames_of_remoting(data)):
        return None
    kind = rng.choice(("flip", "flip", "cut", "huge"))
    if kind == "cut":
        return Garbled(data[: rng.randrange(1, len(data))], is_cut=True, kind=kind)
    changed = bytearray(data)
    start = rng.choice(starts)
    if kind == "huge":
        _LENGTH.pack_into(changed, start, rng.choice(_HUGE))
    elif _frames_of_raft(data):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    else:
        _break_head(changed, start, rng)
    return Garbled(bytes(changed), is_cut=False, kind=kind)


def _break_head(data: bytearray, start: int, rng: random.Random) -> None:
    is_json = data[start + _TYPE_AT] == _JSON
    where = rng.choice(("length", "type", "header" if is_json else "type"))
    if where == "length":
        data[start] ^= 1 << rng.randrange(1, 8)  # 32 MiB or more
    elif where == "type":
        data[start + _TYPE_AT] ^= 1 << rng.randrange(1, 8)
    else:
        data[start + _REMOTING_HEAD] ^= 1 << rng.randrange(8)  # no longer a brace


def _frames_of_raft(data: bytes) -> list[int]:
    """Return where each frame begins, if `data` is nothing but frames."""
    starts = []
    start = 0
    while start < len(data):
        if len(data) - start < PREFIX_SIZE:
            return []
        (crc,) = _LENGTH.unpack_from(data, start + _SUM_AT)
        if zlib.crc32(data[start : start + _SUM_AT]) != crc:
            return []
        starts.append(start)
        start += PREFIX_SIZE + _LENGTH.unpack_from(data, start)[0]
    return starts if start == len(data) else []


def _frames_of_remoting(data: bytes) -> list[int]:
    starts = []
    start = 0
    while start < len(data):
        if len(data) - start <= _REMOTING_HEAD:
            return []
        starts.append(start)
        start += _LENGTH.size + _LENGTH.unpack_from(data, start)[0]
    return starts if start == len(data) else []
