"""frame_damage{codes, share, count, header, bytes}: changes bytes of a frame.

`bytes` of them (1 unless given), drawn by the seed, are replaced by others: in the body, or with
`header` 1 in the header, whose first byte stays. Lengths and serialize type stay too, so that the
frame is still one: what is damaged is its content. A frame without such a part passes as it is and
does not count as affected.
"""

from types import MappingProxyType

from toxiproxy.frames.frame_splitter import Frame
from toxiproxy.frames.frame_start import PREFIX_SIZE, START_SIZE, header_size_of
from toxiproxy.toxics.base import Attributes, integer
from toxiproxy.toxics.frame_stage import FrameStage

__all__ = ["FrameDamageStage"]


class FrameDamageStage(FrameStage):
    """Damages the frames that it hits."""

    type_name = "frame_damage"
    fields = (*FrameStage.fields, "header", "bytes")
    defaults = MappingProxyType({**FrameStage.defaults, "bytes": 1})

    __slots__ = ()

    @classmethod
    def fault_in(cls, attributes: Attributes) -> str | None:
        if integer(attributes, "header") not in {0, 1}:
            return "header must be 0 (the body) or 1 (the header)"
        return super().fault_in(attributes)

    def _hit(self, frame: Frame, code: int | None) -> None:
        raw = bytearray(frame.raw)
        body_begin = PREFIX_SIZE + header_size_of(raw)
        where = range(body_begin, len(raw))
        if self.number("header"):
            where = range(START_SIZE, body_begin)
        places = self.rng.sample(where, min(len(where), self.number("bytes")))
        for place in places:
            raw[place] ^= self.rng.randrange(1, 256)
        if places:
            self._tally.note_affected(code)
        self._outgoing.append(bytes(raw))
