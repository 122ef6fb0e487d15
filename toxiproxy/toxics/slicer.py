"""slicer{average_size, size_variation, delay}: cuts chunks into small ones, `delay` us apart.

A chunk is halved, the cut moved by up to `size_variation` bytes, until the pieces are no longer
than `average_size` plus the variation. Attributes are accepted and shown as given; where
Toxiproxy's own `slicer` would crash on them (an average of 0, its default; a variation beyond the
average), this one works with the nearest values that make sense. Source: Toxiproxy `slicer`.
"""

from collections import deque

from toxiproxy.toxics.base import PacedStage

__all__ = ["SlicerStage"]


class SlicerStage(PacedStage):
    """Cuts chunks into slices and lets them through one by one."""

    type_name = "slicer"
    go_name = "SlicerToxic"
    fields = ("average_size", "size_variation", "delay")
    int_name = "int"

    __slots__ = ("_free_at", "_sizes", "_sizes_sum")

    def _begin(self) -> None:
        super()._begin()
        self._free_at = 0.0
        self._sizes: deque[int] = deque()
        self._sizes_sum = 0

    def _pace(self, arrived: float, size: int, now: float) -> tuple[int, float | None]:
        if self._sizes_sum != size:  # a new chunk, or what an update left of one
            self._sizes = deque(self._slices(size))
            self._sizes_sum = size
        return self._sizes[0], max(arrived, self._free_at)

    def _passed(self, count: int, due: float) -> None:
        self._sizes_sum -= self._sizes.popleft()
        self._free_at = self.timers.now() + max(0, self.number("delay")) / 1e6

    def _slices(self, size: int) -> list[int]:
        """Return sizes that sum up to `size`, by halving on a stack of open ranges."""
        average = max(1, self.number("average_size"))
        variation = min(max(0, self.number("size_variation")), average)
        done: list[int] = []
        waiting = [size]
        while waiting:
            length = waiting.pop()
            if length - average <= variation or length < 2:
                done.append(length)
                continue
            middle = length // 2
            if variation > 0:
                middle += self.rng.randrange(-variation, variation)
            middle = min(max(middle, 1), length - 1)
            waiting += [length - middle, middle]
        return done
