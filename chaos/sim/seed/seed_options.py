"""What every seed decides before it begins, of bare cores and of whole groups alike.

Place in the data path: base of `core_options.SimOptions`, `group_options.GroupOptions` and
`ha_options.HaOptions`; `schedule.draw_schedule` draws the faults by them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["SeedOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedOptions:
    """The options that all kinds have. Times of Raft are milliseconds, others microseconds."""

    seed: int
    node_count: int
    fault_time_us: int
    """How long faults are injected, before everything is healed."""
    fault_rates: dict[str, float]
    """Enabled faults and how often each comes, per 10 election timeouts."""
    heartbeat_ms: int
    election_timeout_ms_min: int
    election_timeout_ms_max: int
    link_delay_us_min: int
    link_delay_us_max: int
    held_survive_rate: float
    """Share of healed cuts after which swallowed messages arrive late instead of being lost."""
    sync_us_min: int
    sync_us_max: int
    short_write_rate: float
    garbage_rate: float
    """Share of lost sectors that read as garbage instead of their previous contents."""
    segment_size_bytes_max: int
    clock_rate_spread: float
    """A node's clock runs at 1 +- this."""
    timer_lateness_us_max: int
    restart_us_max: int
    """Longest restart time; the shortest is near 0, so that a node may be back unnoticed."""
    opening_failure_rate: float
    """Share of starts in the middle of which the node dies, or gets an error of its disk."""
    fault_duration_us_max: int

    def describe(self) -> list[str]:
        """Return one `name=value` per line, for a person who replays the seed."""
        lines = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, dict):
                value = " ".join(f"{name}:{rate:.3f}" for name, rate in value.items()) or "none"
            lines.append(f"{field.name}={value}")
        return lines
