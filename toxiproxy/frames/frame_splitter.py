"""Cut a stream into whole frames, wherever its chunks begin and end.

Place in the data path: the first step of each toxic of `toxiproxy.toxics.frame_stage`.

Invariants: the pieces returned and what is held are the stream, byte for byte, in order; at most
one frame of the protocol's maximum is held; what can't be taken as a whole frame (one that had
begun before the splitter, one beyond the maximum, a stream that carries no frames) is returned as
`bytes`, not held.
"""

from dataclasses import dataclass

from toxiproxy.frames.frame_start import (
    AT_BOUNDARY,
    FrameHead,
    Measure,
    StreamPosition,
    measure,
    read_head,
)

__all__ = ["Frame", "FrameSplitter"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One whole frame as it was read."""

    head: FrameHead
    raw: bytes


class FrameSplitter:
    """Takes chunks and returns frames; `position` is where the stream stands at its beginning."""

    __slots__ = ("_begun", "_gone", "_held", "_left", "foreign")

    def __init__(self, position: StreamPosition = AT_BOUNDARY) -> None:
        self._held = bytearray(position.prefix)
        self._gone = len(position.prefix)  # bytes of `_held` that were passed on before
        self._left = position.left
        self._begun = position.begun
        self.foreign = position.foreign

    def feed(self, data: bytes) -> list[Frame | bytes]:
        """Return the frames that `data` completes, and the bytes that are not held, in order."""
        if self.foreign:
            return [data]
        pieces: list[Frame | bytes] = []
        if self._left:
            passed = data[: self._left]
            self._left -= len(passed)
            pieces.append(passed)
            data = data[len(passed) :]
        self._held += data
        while self._held and self._cut(pieces):
            pass
        return pieces

    def rest(self) -> bytes:
        """Return what is held of an unfinished frame, and hold it no longer."""
        rest = bytes(self._held[self._gone :])
        self._held = bytearray()
        self._gone = 0
        self.foreign = True  # what may follow does not begin at a boundary
        return rest

    def _cut(self, pieces: list[Frame | bytes]) -> bool:
        """Append the next piece; return whether another may follow."""
        held = self._held
        kind, size = measure(held[:16], begun=self._begun)
        if kind is Measure.FOREIGN:
            pieces.append(self.rest())
            return False
        if kind is Measure.UNFINISHED:
            if self._gone and self._gone < len(held):
                pieces.append(bytes(held[self._gone :]))
                self._gone = len(held)
            return False
        self._begun = True
        if kind is Measure.OVERSIZED or self._gone:
            pieces.append(bytes(held[self._gone : size]))
            self._left = max(0, size - len(held))
            self._gone = 0
        elif len(held) < size:
            return False
        else:
            raw = bytes(held[:size])
            pieces.append(Frame(read_head(raw), raw))
        del held[:size]
        return bool(held)
