"""The frames of one direction of one connection, with the request that each answer belongs to.

Place in the data path: `toxiproxy.link.Link` feeds it what leaves the link; the toxics of
`toxiproxy.toxics.frame_stage` ask it for the code of a frame. A response is named by the code of
its request, which passed the opposite direction of the same connection under the same opaque: a
broker's own requests, answered by clients, are matched in the same way.

Invariant: at most 4,096 requests without an answer are remembered per direction, and the last 256
answered ones, for copies of their answers; the oldest go first. A response without a remembered
request has no code.
"""

from typing import Final

from toxiproxy.frames.frame_counts import FrameCounts
from toxiproxy.frames.frame_start import FrameHead, StreamPosition
from toxiproxy.frames.frame_watch import FrameWatch

__all__ = ["LinkFrames", "OpenRequests"]

_OPEN_MAX: Final = 4096
_ANSWERED_MAX: Final = 256


class OpenRequests:
    """The codes of requests that went one way and may be answered the other way."""

    __slots__ = ("_answered", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._answered: dict[int, int] = {}

    def note_sent(self, opaque: int, code: int) -> None:
        """Remember a request that was passed on."""
        _put(self._open, opaque, code, _OPEN_MAX)

    def note_answered(self, opaque: int) -> int | None:
        """Return the code of the request that is answered, now or a moment ago; or None."""
        code = self._open.pop(opaque, None)
        if code is None:
            return self._answered.get(opaque)
        _put(self._answered, opaque, code, _ANSWERED_MAX)
        return code

    def code_of(self, opaque: int) -> int | None:
        """Return the code of the request with that opaque, or None."""
        code = self._open.get(opaque)
        return self._answered.get(opaque) if code is None else code


class LinkFrames:
    """One direction: `own` requests went this way, `opposite` ones are answered this way."""

    __slots__ = ("_opposite", "_own", "_watch", "counts", "stream")

    def __init__(
        self, stream: str, counts: FrameCounts, *, own: OpenRequests, opposite: OpenRequests
    ) -> None:
        self.stream = str(stream)  # of an enumeration's member the hash is slow
        self.counts = counts
        self._own = own
        self._opposite = opposite
        self._watch = FrameWatch(self._on_head, self._on_foreign)

    @property
    def foreign(self) -> bool:
        """Whether the stream carries something else than frames."""
        return self._watch.foreign

    @property
    def position(self) -> StreamPosition:
        """Position behind the bytes that have left the link."""
        return self._watch.position

    def feed(self, data: bytes) -> None:
        """Follow bytes that leave the link."""
        self._watch.feed(data)

    def code_of(self, head: FrameHead) -> int | None:
        """Return the request code of a frame, of an answer that of its request, or None."""
        return self._opposite.code_of(head.opaque) if head.is_response else head.code

    def forget(self, head: FrameHead) -> None:
        """Note that an answer was dropped: nothing of it will leave the link."""
        if head.is_response:
            self._opposite.note_answered(head.opaque)

    def _on_head(self, head: FrameHead) -> None:
        code = head.code
        kind = "request"
        if code is None:
            kind = "unreadable"
        elif head.is_response:
            kind = "response"
            code = self._opposite.note_answered(head.opaque)
        elif not head.is_oneway:
            self._own.note_sent(head.opaque, code)
        self.counts.note_passed(self.stream, kind, code)

    def _on_foreign(self) -> None:
        self.counts.note_foreign(self.stream)


def _put(codes: dict[int, int], opaque: int, code: int, size_max: int) -> None:
    codes.pop(opaque, None)
    codes[opaque] = code
    if len(codes) > size_max:
        del codes[next(iter(codes))]
