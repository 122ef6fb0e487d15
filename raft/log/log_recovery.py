"""Recovery of the segmented log: finds the valid entries, a torn tail, and damage.

Place in the data path: called by `raft.log.segment_log` once, before anything is appended, and by
`ledgermq store check`. It reads only; the log cuts the tail that this module found torn.

Invariants:
- a closed segment counts by its sidecar where that fits the segments around it; its bytes are
  compared when they are read, and by the scrub. Without such a sidecar the segment is walked, as
  the last one always is;
- an entry that is walked is kept only if all of its bytes check: magic, index, position, the chain
  before it and its own chain. Half an entry is never kept;
- durable entries are never dropped. Durable is all of a segment that has a successor, and of the
  last one what is below the durable mark. Where it isn't readable, it is a damage, whose ends are
  known exactly: entries that lead to what is known to follow (the next segment, the mark) are
  right, and entries that merely continue what precedes them are right only up to bytes that are
  plainly wrong. Where whole entries contradict each other, the earlier ones are suspect;
- above the mark anything wrong is a torn tail: those bytes were never reported durable, whether or
  not valid entries follow them (a disk may write un-fsynced pages in any order).

Where nothing tells what a damage held (no readable mark; or a lost segment and a damaged one next
to it, without sidecars), CorruptLogError: the node does not start on the store.

Source: Pillai et al., "All file systems are not created equal" (what a crash may leave behind);
Alagappan et al., "Protocol-Aware Recovery" (damage of acknowledged entries is no torn tail).
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from raft.log.damage import Damage, DamageList
from raft.log.durable_mark import Mark
from raft.log.log_base import StoredBase
from raft.log.log_format import CorruptLogError
from raft.log.segment_files import segment_path, segment_positions
from raft.log.segment_index import SegmentIndex, SegmentSummary
from raft.log.segment_rebuild import Rebuilt, load_sidecar, read_sidecar, rebuild, rebuild_closed
from raft.log.segment_scan import (
    Fragment,
    check_entries,
    damages_of,
    read_first_entry,
    read_tail,
    scan_segment,
)
from raft.messages import Index, LogBase, Term
from raft.storage import Disk, DiskFile

__all__ = ["RecoveredLog", "RecoveryReport", "read_base", "recover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """Result of a recovery. `torn_bytes` were cut off: never durable, never acknowledged.

    `durable_position`: all below it was certainly durable before this start.
    `segments_scanned`: segments that were walked, the last one included; the others have sidecars.
    """

    entries: int
    bytes: int
    torn_bytes: int
    torn_reason: str | None
    segments: int = 1
    segments_scanned: int = 1
    durable_position: int = 0


@dataclass(slots=True, kw_only=True)
class RecoveredLog:
    """Index of the valid log, and where its tail is to be cut.

    `indexes` are those of closed segments that were walked or have damage; the `unindexed` segments
    are undamaged but have no sidecar: it can be written.
    """

    base: LogBase
    closed: list[SegmentSummary] = field(default_factory=list)
    indexes: dict[int, SegmentIndex] = field(default_factory=dict)
    unindexed: list[SegmentSummary] = field(default_factory=list)
    last: SegmentIndex
    term_starts: array[int]
    term_values: array[int]
    config_indexes: list[Index] = field(default_factory=list)
    damages: DamageList = field(default_factory=DamageList)
    durable: LogBase = field(default_factory=LogBase)  # end of what was durable; its term, or 0
    torn_bytes: int = 0
    torn_reason: str | None = None
    segments_scanned: int = 0

    @property
    def durable_term(self) -> Term:
        """Highest known term of the durable entries."""
        run = bisect_right(self.term_starts, self.durable.index) - 1
        return max(self.durable.term, self.term_values[run])

    @property
    def report(self) -> RecoveryReport:
        return RecoveryReport(
            entries=self.last.last_index - self.base.index,
            bytes=self.last.end_position - self.base.position,
            torn_bytes=self.torn_bytes,
            torn_reason=self.torn_reason,
            segments=len(self.closed) + 1,
            segments_scanned=self.segments_scanned,
            durable_position=self.durable.position,
        )

    def add_terms(self, runs: Sequence[tuple[Index, Term]]) -> None:
        for index, term in runs:
            if term != self.term_values[-1]:
                self.term_starts.append(index)
                self.term_values.append(term)


def recover(disk: Disk, directory: str, base: LogBase, mark: Mark | int | None) -> RecoveredLog:
    """Recover the log. Raises OSError, and CorruptLogError if the extent of a damage is unknown."""
    positions = [at for at in segment_positions(disk, directory) if at >= base.position]
    return _Recovery(disk, directory, base, mark, positions).run()


class _Recovery:
    """One walk along the segments; `at` is the place before the next one."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base: LogBase,
        mark: Mark | int | None,
        positions: list[int],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._mark = mark.cut if isinstance(mark, Mark) else mark
        self._known = (
            {one.position: one for one in (mark.last, mark.cut)} if isinstance(mark, Mark) else {}
        )
        self._positions = positions
        self._log = RecoveredLog(
            base=base,
            last=SegmentIndex(base),
            term_starts=array("Q", [base.index]),
            term_values=array("Q", [base.term]),
        )

    def run(self) -> RecoveredLog:
        at = self._log.base
        positions = self._positions
        for position, end in itertools.pairwise(positions):
            at = self._gap(at, position)
            at = self._closed_segment(at, end)
        if positions:
            at = self._gap(at, positions[-1])
        self._last_segment(at)
        return self._log

    # --- closed segments -----------------------------------------------------------------------

    def _closed_segment(self, at: LogBase, end: int) -> LogBase:
        summary = self._sidecar(at.position)
        with self._opened(at.position) as file:
            # The summary spares a walk: reads and the scrub compare the bytes.
            if summary is not None and self._fits(summary, at, end, file):
                missing = self._beyond_the_file(file, summary)
                if missing is not None:
                    self._accept(summary, missing)
                    return summary.end
            return self._walked(file, at, end)

    def _fits(self, summary: SegmentSummary, at: LogBase, end: int, file: DiskFile) -> bool:
        """Return whether the sidecar agrees with the segments before and after it."""
        if not _same_place(summary.before, at) or summary.end_position > end:
            return False
        if summary.end_position < end:
            # The next segment is lost, or the sidecar dates from when this one was shorter.
            return file.size() == summary.end_position - summary.position
        after = self._stated_before(end)
        return after is None or _same_place(summary.end, after)

    def _beyond_the_file(self, file: DiskFile, summary: SegmentSummary) -> list[Damage] | None:
        """Return the damage of a file that is too short; None if the sidecar can't locate it."""
        if file.size() >= summary.end_position - summary.position:
            return []
        index = load_sidecar(self._disk, self._directory, summary)
        if index is None:
            return None
        self._log.indexes[summary.position] = index
        data = read_tail(file, 0)
        bad = check_entries(
            data, summary.position, index, summary.before.index + 1, summary.last_index + 1
        )
        reason = f"the file ends after {len(data)} bytes"
        return damages_of(bad, index, self._path(summary.position), reason)

    def _accept(self, summary: SegmentSummary, damages: list[Damage]) -> None:
        log = self._log
        log.closed.append(summary)
        log.add_terms(summary.term_runs)
        log.config_indexes += summary.config_indexes
        for damage in damages:
            log.damages.add(damage)

    def _accept_lost(self, summary: SegmentSummary) -> None:
        """Note a segment whose file is lost but whose sidecar is there."""
        path, reason = self._path(summary.position), "the file is missing"
        index = load_sidecar(self._disk, self._directory, summary)
        if index is None:
            index = rebuild(summary.before, None, None, summary.end, path=path).index
            known = False
        else:
            known = True
        self._log.indexes[summary.position] = index
        damage = Damage(
            first_index=summary.before.index + 1,
            last_index=summary.last_index,
            position=summary.position,
            end_position=summary.end_position,
            chain_before=summary.before.chain,
            chain_after=summary.chain_after,
            path=path,
            reason=reason,
            entries_known=known,
            terms_known=True,
        )
        self._accept(summary, [damage])

    def _walked(self, file: DiskFile, at: LogBase, end: int) -> LogBase:
        """Walk a closed segment without a trustworthy sidecar."""
        self._log.segments_scanned += 1
        after = self._stated_before(end)
        path = self._path(at.position)
        return self._close(rebuild_closed(file, at, end, after, path=path))

    def _gap(self, at: LogBase, until: int) -> LogBase:
        """Note the lost segments between `at` and the segment at `until`; return where they end."""
        if at.position > until:
            raise CorruptLogError(
                self._path(until), until, f"the log goes on at {at.position}, this segment before"
            )
        while at.position < until:
            summary = self._sidecar(at.position)
            if (
                summary is not None
                and _same_place(summary.before, at)
                and summary.end_position <= until
            ):
                self._accept_lost(summary)
                at = summary.end
                continue
            after = self._stated_before(until)
            if after is None:
                raise CorruptLogError(
                    self._path(at.position),
                    at.position,
                    f"the segment is missing, and nothing tells which entries it held up to "
                    f"position {until}",
                )
            path, reason = self._path(at.position), "the file is missing"
            at = self._close(rebuild(at, None, None, after, path=path, reason=reason))
        return at

    def _close(self, rebuilt: Rebuilt) -> LogBase:
        """Note a closed segment that was walked; return where it ends."""
        index = rebuilt.index
        summary = SegmentSummary(
            before=index.before,
            last_index=index.last_index,
            end_position=index.end_position,
            chain_after=index.chain(index.last_index),
            term_runs=tuple(rebuilt.term_runs),
            config_indexes=tuple(rebuilt.config_indexes),
        )
        if rebuilt.damage is None:
            self._log.unindexed.append(summary)
        self._accept(summary, [] if rebuilt.damage is None else [rebuilt.damage])
        self._log.indexes[summary.position] = index
        return summary.end

    # --- the last segment ----------------------------------------------------------------------

    def _last_segment(self, at: LogBase) -> None:
        log = self._log
        log.segments_scanned += 1
        fragments = [_empty(at)]
        tail_bytes = b""
        if self._positions:
            with self._opened(at.position) as file:
                fragments = scan_segment(
                    file, at.position, index=at.index + 1, chain_before=at.chain
                )
                selected = self._select_fragment(at, fragments)
                tail_bytes = read_tail(file, log.last.end_position - at.position).rstrip(b"\0")
        else:
            selected = self._select_fragment(at, fragments)
        if tail_bytes:
            log.torn_bytes = len(tail_bytes)
            log.torn_reason = selected.defect or "nothing of it was ever durable"

    def _select_fragment(self, at: LogBase, fragments: list[Fragment]) -> Fragment:
        """Decide what the last segment holds; return the fragment that it ends with."""
        mark, head = self._mark, fragments[0]
        if mark is None:
            # Only a torn tail may be dropped without a mark: nothing valid may follow it.
            self._refuse_entries_behind(at, head, fragments)
            mark = head.end_position
        if isinstance(mark, int):
            mark = self._as_cut(mark, at, fragments)
        if mark.position <= at.position:
            mark = at  # a segment that has a successor was durable whole
        self._log.durable = mark
        for fragment in fragments:
            place = (fragment.position, fragment.first_index - 1, fragment.chain_before)
            if (
                fragment.boundary(mark.position) == (mark.index, mark.chain)
                # Damaged up to the mark; what continues it behind the mark was written, too.
                or place == (mark.position, mark.index, mark.chain)
            ):
                self._finish(at, head, fragment, fragment.end)
                return fragment
        # No fragment reaches the mark: what was durable up to it is damaged, only its end is known.
        self._finish(at, head, None, mark)
        self._log.add_terms([(mark.index, mark.term)])
        return head

    def _finish(self, at: LogBase, head: Fragment, tail: Fragment | None, end: LogBase) -> None:
        rebuilt = rebuild(at, head, tail, end, path=self._path(at.position))
        log = self._log
        log.last = rebuilt.index
        log.add_terms(rebuilt.term_runs)
        log.config_indexes += rebuilt.config_indexes
        if rebuilt.damage is not None:
            log.damages.add(rebuilt.damage)

    def _refuse_entries_behind(
        self, at: LogBase, head: Fragment, fragments: list[Fragment]
    ) -> None:
        """Refuse a log without a mark if valid entries follow a defect: the defect was durable."""
        for fragment in fragments[1:]:
            if fragment.first_index > head.last_index:
                raise CorruptLogError(
                    self._path(at.position),
                    head.end_position,
                    f"{head.defect}, and a valid entry stands behind it at position "
                    f"{fragment.position}",
                )

    def _as_cut(self, position: int, at: LogBase, fragments: list[Fragment]) -> LogBase:
        """Locate the mark of an old store, which holds a position only."""
        if position <= at.position:
            return at
        for fragment in fragments:
            boundary = fragment.boundary(position)
            if boundary is not None:
                return LogBase(index=boundary[0], position=position, chain=boundary[1])
        head = fragments[0]
        raise CorruptLogError(
            self._path(at.position),
            head.end_position,
            f"{head.defect or 'the log ends here'}; it was durable up to {position}",
        )

    # --- both ----------------------------------------------------------------------------------

    def _stated_before(self, position: int) -> LogBase | None:
        """Return the place before the segment at `position` as it states itself, without a term."""
        known = self._known.get(position)
        if known is not None:
            return known
        summary = self._sidecar(position)
        if summary is not None:
            return summary.before
        with self._opened(position) as file:
            first = read_first_entry(file, position)
        if first is None:
            return None
        return LogBase(index=first.index - 1, position=position, chain=first.chain_before)

    def _sidecar(self, position: int) -> SegmentSummary | None:
        return read_sidecar(self._disk, self._directory, position)

    def _opened(self, position: int) -> closing[DiskFile]:
        return closing(self._disk.open(self._path(position), create=False))

    def _path(self, position: int) -> str:
        return segment_path(self._directory, position)


def read_base(
    disk: Disk, directory: str, stored: StoredBase | None, mark: Mark | int | None
) -> StoredBase:
    """Return what precedes the log's first entry. Raises OSError and CorruptLogError."""
    if stored is not None:
        if mark is None and not stored.resetting:
            raise CorruptLogError(
                f"{directory}.durable",
                0,
                "neither copy is readable, and nothing else tells where "
                "the durable part of the log ends",
            )
        return stored
    # Never written, or unreadable: the mark has a copy, and the first sidecar holds it as well.
    if isinstance(mark, Mark):
        return StoredBase(base=mark.base, resetting=False)
    first = min(segment_positions(disk, directory), default=0)
    if first == 0:
        return StoredBase(base=LogBase(), resetting=False)
    summary = read_sidecar(disk, directory, first)
    if summary is None:
        raise CorruptLogError(
            f"{directory}.base", 0, f"nothing tells what stood before position {first}"
        )
    return StoredBase(base=summary.before, resetting=False)


def _same_place(one: LogBase, other: LogBase) -> bool:
    """Compare places, but not terms, which are not always known."""
    return (one.position, one.index, one.chain) == (other.position, other.index, other.chain)


def _empty(at: LogBase) -> Fragment:
    return Fragment(
        first_index=at.index + 1,
        position=at.position,
        chain_before=at.chain,
        end_position=at.position,
    )
