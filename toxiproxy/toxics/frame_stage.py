"""What the toxics of RocketMQ frames share: which frames they hit, and what they hold.

An extension: Toxiproxy has none of these. Their attributes:

- `codes`: the request codes that are hit, a list of integers (one integer stands for a list of
  one); empty: every frame. A response counts under the code of its request.
- `share`: how many of those frames in a hundred, drawn by the seed; 100 unless given.
- `count`: at most so many frames on all connections since the toxic was added; 0: no limit.

A stream that carries no frames passes untouched and is counted. Frames go on whole, so a toxic
never leaves the stream inside a frame; a frame beyond the protocol's maximum passes unparsed, and
what is held goes on before it.

Invariants: at most one unfinished frame is held, and of whole ones no more than `held_frames_max`
and `held_bytes_max`, beyond which the source is paused; a stage follows its stream even where the
draw of `toxicity` spares the connection, since it could not find a frame's beginning later.

Source: docs/TOXIPROXY.md.
"""

from abc import abstractmethod
from types import MappingProxyType
from typing import ClassVar, Final

from toxiproxy.frames.frame_counts import ToxicTally
from toxiproxy.frames.frame_splitter import Frame, FrameSplitter
from toxiproxy.frames.link_frames import LinkFrames
from toxiproxy.toxics.base import Attributes, Stage, integer

__all__ = ["FrameStage"]

CODES_MAX: Final = 64
_INT32_MAX: Final = (1 << 31) - 1


class FrameStage(Stage):
    """A toxic of whole frames; a kind says in `_hit` what becomes of a frame that it hits."""

    go_name = "FrameToxic"
    stays = True
    fields: ClassVar[tuple[str, ...]] = ("codes", "share", "count")
    defaults: ClassVar[Attributes] = MappingProxyType({"codes": (), "share": 100})
    held_frames_max: ClassVar[int] = 1024
    held_bytes_max: ClassVar[int] = 32 * 1024 * 1024

    __slots__ = ("_codes", "_finishing", "_frames", "_name", "_outgoing", "_splitter", "_tally")

    def _begin(self) -> None:
        super()._begin()
        self._outgoing: list[bytes] = []
        self._finishing = False
        self._codes = frozenset(self._listed(self.attributes))

    def follow(self, frames: LinkFrames, *, name: str) -> None:
        """Begin where the stream of `frames` stands; the toxic counts under `name`.

        Called once, before the first chunk, by the link that made the stage.
        """
        self._frames = frames
        self._name = name
        self._splitter = FrameSplitter(frames.position)
        self._tally: ToxicTally = frames.counts.tally(name, self.type_name, frames.stream)
        if self._splitter.foreign:
            frames.counts.note_untouched(name, frames.stream)

    @classmethod
    def fault_in(cls, attributes: Attributes) -> str | None:
        codes = cls._listed(attributes)
        if len(codes) > CODES_MAX:
            return f"codes must be at most {CODES_MAX}"
        if any(not -_INT32_MAX <= code <= _INT32_MAX for code in codes):
            return "codes must be of 32 bits"
        if not 0 <= integer(attributes, "share") <= 100:
            return "share must be 0 to 100 (percent)"
        for field in cls.fields[1:]:
            if not 0 <= integer(attributes, field) <= _INT32_MAX:
                return f"{field} must be 0 to {_INT32_MAX}"
        return None

    def feed(self, data: bytes) -> None:
        if self.ended or self._finishing:
            return
        was_foreign = self._splitter.foreign
        for piece in self._splitter.feed(data):
            if not isinstance(piece, Frame):
                self._release_held()
                self._outgoing.append(piece)
                continue
            code = self._frames.code_of(piece.head)
            if self.spared:
                self._pass(piece)
                continue
            self._tally.note_seen(code)
            if self._hits(code):
                self._hit(piece, code)
            else:
                self._pass(piece)
        if self._splitter.foreign and not was_foreign:
            self._frames.counts.note_untouched(self._name, self._frames.stream)
        self._flush()

    def finish(self) -> None:
        if not self._finishing and not self.ended:
            self._finishing = True
            self._end_once_empty()

    def release(self) -> None:
        """Pass on at once all held frames and the beginning of an unfinished one, and then the end
        of the stream where the source has finished."""
        self._release_held()
        self._outgoing.append(self._splitter.rest())
        self._flush()
        if self._finishing:
            self._end()

    def update(self, attributes: Attributes) -> None:
        super().update(attributes)
        self._codes = frozenset(self._listed(attributes))

    def spare(self, spared: bool) -> None:
        super().spare(spared)
        if spared:
            self._release_held()
            self._flush()
            self._end_once_empty()

    @abstractmethod
    def _hit(self, frame: Frame, code: int | None) -> None:
        """Do to the frame what the toxic does."""

    def _pass(self, frame: Frame) -> None:
        """Pass on a frame that is not hit."""
        self._outgoing.append(frame.raw)

    def _release_held(self) -> None:
        """Pass on at once the whole frames that are held, in the order in which they came."""

    def _is_empty(self) -> bool:
        """Return whether no whole frame is held."""
        return True

    def _end_once_empty(self) -> None:
        """Pass on an unfinished frame and the end of the stream, behind the last frame held."""
        if self._finishing and not self.ended and self._is_empty():
            self._outgoing.append(self._splitter.rest())
            self._flush()
            self._end()

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        data = b"".join(outgoing)
        if data and not self.ended:
            self.out.feed(data)

    def _hits(self, code: int | None) -> bool:
        """Decide whether the toxic hits a frame with that code."""
        if self._codes and code not in self._codes:
            return False
        if self._is_spent():
            return False
        share = self.number("share")
        return share >= 100 or self.rng.random() * 100 < share

    def _is_spent(self) -> bool:
        """Return whether the toxic has hit as many frames as it may."""
        count = self.number("count")
        return count > 0 and self._tally.affected_count >= count

    @staticmethod
    def _listed(attributes: Attributes) -> tuple[int, ...]:
        codes = attributes["codes"]
        assert isinstance(codes, tuple)
        return codes
