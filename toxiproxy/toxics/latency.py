"""latency{latency, jitter}: each chunk goes on `latency` +- `jitter` milliseconds after it came.

A pipeline: the delay counts from the arrival of the chunk, so throughput is not touched; order is
kept, so a late chunk holds up those behind it. The jitter is drawn evenly from [-jitter, jitter).
The end of the stream waits only for the chunks before it. Source: Toxiproxy `latency`.
"""

from toxiproxy.toxics.base import INT64_MAX, Attributes, PacedStage, integer

__all__ = ["LatencyStage"]


class LatencyStage(PacedStage):
    """Delays chunks; it holds 1,024 of them or 32 MiB at most."""

    type_name = "latency"
    go_name = "LatencyToxic"
    fields = ("latency", "jitter")
    held_bytes_max = 32 * 1024 * 1024

    __slots__ = ()

    @classmethod
    def fault_in(cls, attributes: Attributes) -> str | None:
        if integer(attributes, "jitter") > INT64_MAX // 2:
            return f"jitter must be at most {INT64_MAX // 2}"
        return None

    def _pace(self, arrived: float, size: int, now: float) -> tuple[int, float | None]:
        delay_ms = self.number("latency")
        jitter_ms = self.number("jitter")
        if jitter_ms > 0:
            delay_ms += self.rng.randrange(-jitter_ms, jitter_ms)
        return size, arrived + delay_ms / 1000
