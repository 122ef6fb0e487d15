"""What the disk of a store has room for.

Place in the data path: `broker.process.housekeeping` decides it every 100 ms by how much of the
disk is used, and `broker.request.leadership` refuses by it: while the disk is too full the leader
rejects sends with RocketMQ's code 14, which is a definite failure, and accepts them again without
intervention. Pure.

Invariant: what makes room is not refused for want of room. Acknowledgements, offsets, decisions,
deletions are committed for as long as the log takes an entry; messages that wait or are held are
delivered from half of what is reserved: retention has to leave them until then.

Rules: RocketMQ's `disk_space_warning_level_ratio` (percent, as `df` shows it), and a minimum of
free bytes, since the last percent of a small disk may be less than what is in flight. The log has a
say too: it allocates its blocks before it takes an entry, and reports when it could not.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DiskUse", "Room", "room_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """Used and free bytes of a disk; `free` is what this process may still use."""

    used: int
    free: int

    @property
    def used_percent(self) -> float:
        return 100.0 * self.used / max(1, self.used + self.free)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the disk has room for."""

    want: str | None = None
    """Why messages of clients are refused; None: they are stored."""
    for_own: bool = True
    """Whether the broker delivers what waits, or is held, and so stores it again."""
    for_commands: bool = True
    """Whether the log takes an entry at all."""


def room_of(
    use: DiskUse, *, warning_level_ratio: int, free_size_min: int, log_writable: bool
) -> Room:
    """Return what a disk of this use has room for."""
    want: str | None = None
    if use.free < free_size_min:
        want = f"less than {free_size_min} bytes are free at the store"
    elif use.used_percent > warning_level_ratio:
        want = f"{use.used_percent:.1f} % of it are used, more than {warning_level_ratio} %"
    elif not log_writable:
        want = "the log finds no room for more entries"
    return Room(
        want=want,
        for_own=log_writable and use.free >= free_size_min // 2,
        for_commands=log_writable,
    )
