"""bandwidth{rate}: at most `rate` kilobytes (of 1,000 bytes) a second; 0 lets nothing through.

Long chunks are cut into pieces of at most 32 KiB and 100 ms each. The time at which a piece is due
counts from when its predecessor was due, not from when the timer rang, so coarse timers do not
lower the rate. Source: Toxiproxy `bandwidth`.
"""

from toxiproxy.toxics.base import Attributes, PacedStage, integer

__all__ = ["BandwidthStage"]

_PIECE_SIZE_MAX = 32 * 1024
_PIECE_MS_MAX = 100


class BandwidthStage(PacedStage):
    """Lets bytes through at a steady rate; at 256 KiB waiting, the sender is paused."""

    type_name = "bandwidth"
    go_name = "BandwidthToxic"
    fields = ("rate",)

    __slots__ = ("_free_at",)

    def _begin(self) -> None:
        super()._begin()
        self._free_at = 0.0

    @classmethod
    def fault_in(cls, attributes: Attributes) -> str | None:
        if integer(attributes, "rate") < 0:
            return "rate must not be negative"
        return None

    def _pace(self, arrived: float, size: int, now: float) -> tuple[int, float | None]:
        rate = self.number("rate")
        if rate <= 0:
            return size, None
        count = min(size, _PIECE_SIZE_MAX, rate * _PIECE_MS_MAX)
        begun = max(arrived, self._free_at)
        return count, begun + count / (rate * 1000)

    def _passed(self, count: int, due: float) -> None:
        self._free_at = due
