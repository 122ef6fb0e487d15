"""frame_drop{codes, share, count}: drops whole frames.

Upstream the request never reaches the server; downstream the server has carried it out, and its
answer is lost: the client's outcome is unknown. The connection stays as it is.
"""

from toxiproxy.frames.frame_splitter import Frame
from toxiproxy.toxics.frame_stage import FrameStage

__all__ = ["FrameDropStage"]


class FrameDropStage(FrameStage):
    """Drops the frames that it hits."""

    type_name = "frame_drop"

    __slots__ = ()

    def _hit(self, frame: Frame, code: int | None) -> None:
        self._frames.forget(frame.head)
        self._tally.note_affected(code)
