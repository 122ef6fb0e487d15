"""frame_duplicate{codes, share, count}: passes each frame on twice, one copy behind the other.

Upstream the server gets a request twice, under one opaque; downstream a client gets two answers.
"""

from toxiproxy.frames.frame_splitter import Frame
from toxiproxy.toxics.frame_stage import FrameStage

__all__ = ["FrameDuplicateStage"]


class FrameDuplicateStage(FrameStage):
    """Repeats the frames that it hits."""

    type_name = "frame_duplicate"

    __slots__ = ()

    def _hit(self, frame: Frame, code: int | None) -> None:
        self._pass(frame)
        self._pass(frame)
        self._tally.note_affected(code)
