"""Cuts the byte stream of a connection into frames.

Place in the data path: `raft.connection` receives into its buffer and hands each frame that is
whole to `raft.wire`. Pure, no sockets.

Invariants: memory is bounded by the largest frame allowed, which a prefix that announces more
cannot get around; a frame given out is valid until the next call of `get_buffer`.
"""

from __future__ import annotations

import struct

__all__ = ["FRAME_SIZE_BYTES_MAX", "FrameReader", "WireError"]

FRAME_SIZE_BYTES_MAX = 64 << 20
_BUFFER_SIZE_MIN = 256 << 10
_SIZE = struct.Struct(">I")


class WireError(Exception):
    """The bytes are no message; the connection they came on is closed."""


class FrameReader:
    """Cuts a byte stream into frames, for a protocol that receives into a buffer of ours.

    Memory is bounded by the largest frame allowed; a larger one is refused by its prefix.
    """

    __slots__ = ("_buffer", "_end", "_start", "size_bytes_max")

    def __init__(self, size_bytes_max: int = FRAME_SIZE_BYTES_MAX) -> None:
        self.size_bytes_max = size_bytes_max
        self._buffer = bytearray(_BUFFER_SIZE_MIN)
        self._start = 0  # of the first byte not yet given out
        self._end = 0  # of what was received

    def get_buffer(self) -> memoryview:
        """Where the next bytes are to be received. Frames given out before lose their bytes."""
        held = self._end - self._start
        needed = _BUFFER_SIZE_MIN // 2
        if held >= _SIZE.size:
            needed = self._frame_size() + _SIZE.size - held
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > 4 * _BUFFER_SIZE_MIN:
                self._buffer = bytearray(_BUFFER_SIZE_MIN)
        elif self._start and len(self._buffer) - self._end < needed:
            # Same size on both sides: the bytearray is not resized, views of it may exist.
            self._buffer[:held] = self._buffer[self._start : self._end]
            self._start, self._end = 0, held
        if len(self._buffer) - self._end < needed and self._end:
            grown = bytearray(max(held + needed, 2 * _BUFFER_SIZE_MIN))
            grown[:held] = self._buffer[self._start : self._end]
            self._buffer, self._start, self._end = grown, 0, held
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that are whole now, without their size prefix; valid until `get_buffer`.

        Raises WireError where a prefix announces a frame beyond the limit.
        """
        self._end += count
        frames: list[memoryview] = []
        view = memoryview(self._buffer)
        while self._end - self._start >= _SIZE.size:
            size = self._frame_size()
            if size > self.size_bytes_max:
                raise WireError(f"frame of {size} bytes, at most {self.size_bytes_max} are allowed")
            begin = self._start + _SIZE.size
            if self._end - begin < size:
                break
            frames.append(view[begin : begin + size])
            self._start = begin + size
        return frames

    def _frame_size(self) -> int:
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        return int(size)
