"""Durable entries that are not readable any more, and what is known of their place.

Place in the data path: recovery, reads and the scrub of `raft.log.segment_log` find damage; the
node fetches the entries from a peer and passes them to `SegmentLog.repair`, which checks them
against both ends recorded here.

Invariant: damage is never cut off and never served. Access to it raises DamagedLogError.

Source: "Protocol-Aware Recovery for Consensus-Based Storage" (FAST '18).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from raft.log.log_format import CorruptLogError
from raft.messages import Index, LogBase

__all__ = [
    "Damage",
    "DamageList",
    "DamagedLogError",
    "NeverCommittedError",
    "RepairMismatchError",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Entries [first_index, last_index], bytes [position, end_position) of the log.

    `chain_before` is the chain of the entry before the first, `chain_after` that of the last:
    entries that lead from the one to the other are the right ones.
    `entries_known`: the places and chains of the entries inside are known from the index. Where
    they are not, the entries of the segment before the damage, from `suspect_index` on, are not
    confirmed either: they are self-consistent, and could still be stale. They are not served, but a
    repair that continues them and leads to what follows confirms them.
    `terms_known`: the terms of all of them, and which are CONFIG entries, are known all the same,
    from the head of the segment's sidecar.
    """

    first_index: Index
    last_index: Index
    position: int
    end_position: int
    chain_before: int
    chain_after: int
    path: str
    reason: str
    entries_known: bool = True
    terms_known: bool = False
    suspect: tuple[Index, int] | None = None  # index and position of the first suspect entry

    @property
    def suspect_index(self) -> Index:
        return self.first_index if self.suspect is None else self.suspect[0]

    @property
    def suspect_position(self) -> int:
        return self.position if self.suspect is None else self.suspect[1]

    @property
    def count(self) -> int:
        return self.last_index - self.first_index + 1

    def __str__(self) -> str:
        return f"entries {self.first_index}..{self.last_index}: {self.reason}"


class DamagedLogError(CorruptLogError):
    """The requested entries or bytes are damaged; other parts of the log are not affected."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(damage.path, damage.position, str(damage))
        self.damage = damage


class RepairMismatchError(Exception):
    """The given entries are not the missing ones; none of them is kept."""


class NeverCommittedError(Exception):
    """A peer's committed entries contradict this log: what follows `cut` never was committed.

    `cut` is the place where the log may end: it is contained in what the peer has committed. The
    entry there may be damaged, or missing, in this log; with the cut as its end it is known again.
    """

    def __init__(self, cut: LogBase) -> None:
        super().__init__(f"entries from {cut.index + 1} on never were committed")
        self.cut = cut

    @property
    def index(self) -> Index:
        """First entry that never was committed."""
        return self.cut.index + 1


class DamageList:
    """Damages in the log's order, none overlapping another."""

    __slots__ = ("_firsts", "_list")

    def __init__(self) -> None:
        self._list: list[Damage] = []
        self._firsts: list[Index] = []

    def __bool__(self) -> bool:
        return bool(self._list)

    def __iter__(self) -> Iterator[Damage]:
        return iter(self._list)

    def all(self) -> tuple[Damage, ...]:
        return tuple(self._list)

    def at(self, index: Index) -> Damage | None:
        """Return the damage that holds the entry."""
        place = bisect_right(self._firsts, index) - 1
        if place >= 0 and self._list[place].last_index >= index:
            return self._list[place]
        return None

    def next(self, index: Index) -> Damage | None:
        """Return the first damage that ends at or behind the entry."""
        place = bisect_right(self._firsts, index)
        if place and self._list[place - 1].last_index >= index:
            return self._list[place - 1]
        return self._list[place] if place < len(self._list) else None

    def overlapping(self, position: int, end_position: int) -> Damage | None:
        """Return the first damage that affects a byte of [position, end_position)."""
        for damage in self._list:
            if damage.suspect_position < end_position and position < damage.end_position:
                return damage
        return None

    def add(self, damage: Damage) -> None:
        """Add what of a damage is not known yet; overlapping ones are merged."""
        self._set([*self._list, damage])

    def remove(self, damage: Damage) -> None:
        self._set([known for known in self._list if known != damage])

    def replace(self, damage: Damage, rest: Damage) -> None:
        self._set([rest if known == damage else known for known in self._list])

    def clear(self) -> None:
        self._set([])

    def drop_before(self, index: Index) -> None:
        """Drop damage before `index`, the first entry of a segment, where the log begins now."""
        self._set([known for known in self._list if known.last_index >= index])

    def truncate_from(self, index: Index, position: int, chain_before: int) -> None:
        """Drop damage at `position` and behind it, as the log is truncated there."""
        remaining = []
        for known in self._list:
            if known.first_index >= index:
                continue
            if known.last_index < index:
                remaining.append(known)
                continue
            remaining.append(
                replace(
                    known, last_index=index - 1, end_position=position, chain_after=chain_before
                )
            )
        self._set(remaining)

    def _set(self, damages: list[Damage]) -> None:
        merged: list[Damage] = []
        for damage in sorted(damages, key=lambda one: (one.first_index, one.last_index)):
            last = merged[-1] if merged else None
            if last is not None and damage.last_index <= last.last_index:
                continue
            if last is not None and damage.first_index <= last.last_index:
                # They were found separately: the first one takes the end of the other.
                merged[-1] = replace(
                    last,
                    last_index=damage.last_index,
                    end_position=damage.end_position,
                    chain_after=damage.chain_after,
                )
                continue
            merged.append(damage)
        self._list = merged
        self._firsts = [damage.first_index for damage in merged]
