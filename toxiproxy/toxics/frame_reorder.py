"""frame_reorder{codes, share, count, wait}: lets the next frame overtake.

A frame that is hit is held until the next one, of whatever code, has passed, but no longer than
`wait` milliseconds (1,000 unless given). One that nothing overtook in that time goes on and does
not count as affected. One frame is held at a time.
"""

from types import MappingProxyType

from toxiproxy.frames.frame_splitter import Frame
from toxiproxy.toxics.base import Cancellable
from toxiproxy.toxics.frame_stage import FrameStage

__all__ = ["FrameReorderStage"]


class FrameReorderStage(FrameStage):
    """Swaps the frames that it hits with their successors."""

    type_name = "frame_reorder"
    fields = (*FrameStage.fields, "wait")
    defaults = MappingProxyType({**FrameStage.defaults, "wait": 1000})

    __slots__ = ("_code", "_frame", "_timer")

    def _begin(self) -> None:
        super()._begin()
        self._frame: Frame | None = None
        self._code: int | None = None
        self._timer: Cancellable | None = None

    def close(self) -> None:
        super().close()
        self._stop_timer()
        self._frame = None

    def _hit(self, frame: Frame, code: int | None) -> None:
        if self._frame is not None:
            self._pass(frame)
            return
        self._frame = frame
        self._code = code
        when = self.timers.now() + self.number("wait") / 1000
        self._timer = self.timers.call_at(when, self._ring)

    def _pass(self, frame: Frame) -> None:
        if self._frame is None:
            super()._pass(frame)
        elif self._is_spent():  # another connection has used up the count meanwhile
            self._release_held()
            super()._pass(frame)
        else:
            super()._pass(frame)
            self._release_held()
            self._tally.note_affected(self._code)

    def _release_held(self) -> None:
        self._stop_timer()
        if self._frame is not None:
            self._outgoing.append(self._frame.raw)
            self._frame = None

    def _is_empty(self) -> bool:
        return self._frame is None

    def _ring(self) -> None:
        self._timer = None
        self._release_held()
        self._flush()
        self._end_once_empty()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
