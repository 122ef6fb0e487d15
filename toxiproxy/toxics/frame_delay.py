"""frame_delay{codes, share, count, delay, jitter}: holds frames back for a time.

Each frame goes on `delay` +- `jitter` milliseconds after it was complete, the jitter drawn evenly
from [-jitter, jitter). Frames that are not hit overtake those that are: one slow answer on a
connection that is quick otherwise. (`latency` delays all bytes and keeps their order.) The end of
the stream waits for the frames before it; an update holds for frames that come after it.
"""

import heapq
import itertools
from collections.abc import Iterator

from toxiproxy.frames.frame_splitter import Frame
from toxiproxy.toxics.base import Cancellable
from toxiproxy.toxics.frame_stage import FrameStage

__all__ = ["FrameDelayStage"]

_EARLY_S = 0.0005


class FrameDelayStage(FrameStage):
    """Delays the frames that it hits; 1,024 of them or 32 MiB wait at most."""

    type_name = "frame_delay"
    fields = (*FrameStage.fields, "delay", "jitter")

    __slots__ = ("_held_bytes", "_order", "_timer", "_waiting")

    def _begin(self) -> None:
        super()._begin()
        self._waiting: list[tuple[float, int, bytes]] = []
        self._held_bytes = 0
        self._order: Iterator[int] = itertools.count()
        self._timer: Cancellable | None = None

    @property
    def full(self) -> bool:
        return len(self._waiting) >= self.held_frames_max or self._held_bytes >= self.held_bytes_max

    def close(self) -> None:
        super().close()
        self._stop_timer()
        self._waiting.clear()
        self._held_bytes = 0

    def _hit(self, frame: Frame, code: int | None) -> None:
        delay_ms = self.number("delay")
        jitter_ms = self.number("jitter")
        if jitter_ms:
            delay_ms += self.rng.randrange(-jitter_ms, jitter_ms)
        due = self.timers.now() + max(0, delay_ms) / 1000
        heapq.heappush(self._waiting, (due, next(self._order), frame.raw))
        self._held_bytes += len(frame.raw)
        self._tally.note_affected(code)
        if self._waiting[0][0] == due:
            self._set_timer()

    def _release_held(self) -> None:
        self._stop_timer()
        for _, _, raw in sorted(self._waiting, key=lambda held: held[1]):
            self._outgoing.append(raw)
        self._waiting.clear()
        self._held_bytes = 0

    def _is_empty(self) -> bool:
        return not self._waiting

    def _ring(self) -> None:
        self._timer = None
        was_full = self.full
        while self._waiting and self._waiting[0][0] <= self.timers.now() + _EARLY_S:
            raw = heapq.heappop(self._waiting)[2]
            self._held_bytes -= len(raw)
            self._outgoing.append(raw)
        self._flush()
        if self._waiting and not self.ended:
            self._set_timer()
        self._end_once_empty()
        if was_full and not self.full:
            self.on_room()

    def _set_timer(self) -> None:
        self._stop_timer()
        self._timer = self.timers.call_at(self._waiting[0][0], self._ring)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
