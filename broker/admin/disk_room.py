"""Disk usage of a store, and the decision whether the disk is too full for new messages.

Place in the data path: `broker.process.housekeeping` checks every 100 ms; while the disk is too
full the leader rejects sends with RocketMQ's code 14, which is a definite failure, and accepts them
again without intervention.

Rules: RocketMQ's `disk_space_warning_level_ratio` (percent, as `df` shows it), and a minimum of
free bytes, since the last percent of a small disk may be less than what is in flight. The log has a
say too: it allocates its blocks before it takes an entry, and reports when it could not.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DiskUse", "disk_use", "want_of_room"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """Used and free bytes of a disk; `free` is what this process may still use."""

    used: int
    free: int

    @property
    def used_percent(self) -> float:
        return 100.0 * self.used / max(1, self.used + self.free)


def disk_use(store: Path) -> DiskUse:
    """Return the usage of the disk under `store`. Raises OSError."""
    usage = shutil.disk_usage(store)
    return DiskUse(used=usage.used, free=usage.free)


def want_of_room(
    use: DiskUse, *, warning_level_ratio: int, free_size_min: int, log_writable: bool
) -> str | None:
    """Return why nothing may be stored now, or None if there is room."""
    if use.free < free_size_min:
        return f"less than {free_size_min} bytes are free at the store"
    if use.used_percent > warning_level_ratio:
        return f"{use.used_percent:.1f} % of it are used, more than {warning_level_ratio} %"
    if not log_writable:
        return "the log finds no room for more entries"
    return None
