"""Follow the frames of a stream of which nothing may be held back.

Place in the data path: at the end of every `toxiproxy.link.Link`, before the destination's write
buffer. It knows how far the current frame has gone, so that a toxic added to a live connection
begins at a frame's first byte, and it reports each header once it is complete.

Invariants: of a frame only prefix and header are held, and of a header no more than 64 KiB; once
`foreign`, always foreign, and nothing is held.
"""

from collections.abc import Callable
from typing import Final

from toxiproxy.frames.frame_start import (
    PREFIX_SIZE,
    START_SIZE,
    FrameHead,
    Measure,
    StreamPosition,
    header_size_of,
    measure,
    read_head,
)

__all__ = ["FrameWatch"]

_HEADER_SIZE_MAX: Final = 64 * 1024


class FrameWatch:
    """The position of one stream; `on_head` is called with each header, `on_foreign` once."""

    __slots__ = ("_begun", "_left", "_on_foreign", "_on_head", "_size", "_start", "foreign")

    def __init__(
        self, on_head: Callable[[FrameHead], None], on_foreign: Callable[[], None]
    ) -> None:
        self._on_head = on_head
        self._on_foreign = on_foreign
        self._start = bytearray()
        self._size = 0  # of the frame whose header is being collected
        self._left = 0
        self._begun = False
        self.foreign = False

    @property
    def position(self) -> StreamPosition:
        """Position of the stream."""
        if self.foreign:
            return StreamPosition(begun=self._begun, foreign=True)
        if self._size:
            left = self._size - len(self._start)
            return StreamPosition(left=left, begun=True)
        return StreamPosition(prefix=bytes(self._start), left=self._left, begun=self._begun)

    def feed(self, data: bytes) -> None:
        """Follow the next chunk."""
        at = 0
        end = len(data)
        while at < end and not self.foreign:
            if self._left:
                step = min(self._left, end - at)
                self._left -= step
                at += step
                continue
            if self._begun and not self._start and end - at >= PREFIX_SIZE:
                kind, size = measure(data, at, begun=True)
                header_end = at + PREFIX_SIZE + header_size_of(data, at)
                if kind is Measure.FRAME and header_end <= end:  # nearly always
                    self._left = size
                    if header_end - at <= _HEADER_SIZE_MAX:
                        self._on_head(read_head(data, at))
                    else:
                        self._on_head(FrameHead(None))
                    continue
            wanted = self._wanted() - len(self._start)
            piece = data[at : at + wanted]
            self._start += piece
            at += len(piece)
            self._measure()

    def _wanted(self) -> int:
        """Return how many bytes of the frame must be collected before the next decision."""
        if self._size:
            return PREFIX_SIZE + header_size_of(self._start)
        return PREFIX_SIZE if self._begun or len(self._start) < PREFIX_SIZE else START_SIZE

    def _measure(self) -> None:
        start = self._start
        if not self._size:
            kind, size = measure(start, begun=self._begun)
            if kind is Measure.UNFINISHED:
                return
            if kind is Measure.FOREIGN:
                self.foreign = True
                self._start = bytearray()
                self._on_foreign()
                return
            self._begun = True
            if kind is Measure.OVERSIZED or header_size_of(start) > _HEADER_SIZE_MAX:
                self._end_head(FrameHead(None), size)
                return
            self._size = size
        if len(start) >= PREFIX_SIZE + header_size_of(start):
            self._end_head(read_head(start), self._size)

    def _end_head(self, head: FrameHead, size: int) -> None:
        self._left = size - len(self._start)
        self._start = bytearray()
        self._size = 0
        self._on_head(head)
