"""Cuts the byte stream of a connection into frames, and checks that each arrived as it was sent.

Place in the data path: `raft.peers.connection` receives into its buffer and passes each frame that
is whole to `raft.peers.wire`; `raft.peers.wire` and `raft.peers.handshake` begin theirs with
`frame_prefix`. Pure, no sockets.

The prefix of a frame:

| offset | size | field |
|---|---|---|
| 0 | 4 | size N of all behind the prefix |
| 4 | 4 | CRC32 of these N bytes |
| 8 | 4 | CRC32 of bytes 0..8 |

TCP's 16-bit checksum lets one damaged segment in 65,536 pass, and does not see damage done by a
proxy at all: a follower would store other bytes than its leader, under the same term and index. The
size has a check of its own: a wrong size within the limit would swallow all frames behind it, for
as long as it takes to fill it.

Invariants: no frame is returned whose bytes are not those that were sent; memory is bounded by the
largest frame allowed, which a prefix that announces more cannot get around; a returned frame is
valid until the next call of `get_buffer`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from isal.isal_zlib import crc32

__all__ = ["FRAME_SIZE_BYTES_MAX", "PREFIX_SIZE", "FrameReader", "WireError", "frame_prefix"]

FRAME_SIZE_BYTES_MAX = 64 << 20
_BUFFER_SIZE_MIN = 256 << 10
_SIZE = struct.Struct(">I")
_SIZE_AND_SUM = struct.Struct(">II")
_PREFIX = struct.Struct(">III")
PREFIX_SIZE = _PREFIX.size


class WireError(Exception):
    """The bytes are no message; the connection they came on is closed."""


def frame_prefix(parts: Iterable[bytes]) -> bytes:
    """Return the prefix of a frame of these parts, one behind the other."""
    size = crc = 0
    for part in parts:
        size += len(part)
        crc = crc32(part, crc)
    assert size <= FRAME_SIZE_BYTES_MAX, f"the configuration allows a frame of {size} bytes"
    size_and_sum = _SIZE_AND_SUM.pack(size, crc)
    return size_and_sum + _SIZE.pack(crc32(size_and_sum))


class FrameReader:
    """Cuts a byte stream into frames, for a protocol that receives into a given buffer.

    Memory is bounded by the largest frame allowed; a larger one is refused by its prefix.
    """

    __slots__ = ("_buffer", "_end", "_start", "_view", "size_bytes_max")

    def __init__(self, size_bytes_max: int = FRAME_SIZE_BYTES_MAX) -> None:
        self.size_bytes_max = size_bytes_max
        self._buffer = bytearray(_BUFFER_SIZE_MIN)
        self._view = memoryview(self._buffer)
        self._start = 0  # of the first byte not yet returned
        self._end = 0  # of the received bytes

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes. Frames returned before lose their bytes."""
        if self._start == self._end and len(self._buffer) <= 4 * _BUFFER_SIZE_MIN:
            self._start = self._end = 0
            return self._view
        held = self._end - self._start
        needed = _BUFFER_SIZE_MIN // 2
        if held >= PREFIX_SIZE:
            needed = self._frame_size() + PREFIX_SIZE - held
        if self._start == self._end:
            self._start = self._end = 0
            self._hold(bytearray(_BUFFER_SIZE_MIN))
        elif self._start and len(self._buffer) - self._end < needed:
            # Same size on both sides: the bytearray is not resized, views of it may exist.
            self._buffer[:held] = self._buffer[self._start : self._end]
            self._start, self._end = 0, held
        if len(self._buffer) - self._end < needed and self._end:
            grown = bytearray(max(held + needed, 2 * _BUFFER_SIZE_MIN))
            grown[:held] = self._buffer[self._start : self._end]
            self._hold(grown)
            self._start, self._end = 0, held
        return self._view[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """Return the frames that are whole now, without their prefix; valid until `get_buffer`.

        Raises WireError where a prefix announces a frame beyond the limit, and where prefix or
        frame are not what was sent.
        """
        self._end += count
        frames: list[memoryview] = []
        view = self._view
        while self._end - self._start >= PREFIX_SIZE:
            size, crc, prefix_crc = _PREFIX.unpack_from(view, self._start)
            self._check_size(size)
            begin = self._start + PREFIX_SIZE
            if crc32(view[self._start : begin - _SIZE.size]) != prefix_crc:
                raise WireError("prefix of a frame: its bytes are not those that were sent")
            if self._end - begin < size:
                return frames
            frame = view[begin : begin + size]
            if crc32(frame) != crc:
                raise WireError(f"frame of {size} bytes: they are not those that were sent")
            frames.append(frame)
            self._start = begin + size
        if self._end - self._start >= _SIZE.size:
            self._check_size(self._frame_size())  # before the rest of its prefix is there
        return frames

    def _check_size(self, size: int) -> None:
        if size > self.size_bytes_max:
            raise WireError(f"frame of {size} bytes, at most {self.size_bytes_max} are allowed")

    def _hold(self, buffer: bytearray) -> None:
        self._buffer, self._view = buffer, memoryview(buffer)

    def _frame_size(self) -> int:
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        return int(size)
