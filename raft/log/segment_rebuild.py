"""Rebuilds the index of a segment from its readable parts.

Place in the data path: recovery does so for a segment without a sidecar, and `raft.log.segment_log`
where a sidecar turns out to be unreadable.

Invariants: an entry is indexed only if it continues what precedes the segment, or leads to what
follows it; all between the two is one damage, of which only the ends are known. Where the two
overlap or touch, whole entries contradict each other, and the earlier ones are suspect, as the
later ones are tied to the log's end.

Source: "Protocol-Aware Recovery for Consensus-Based Storage" (FAST '18).
"""

from __future__ import annotations

from array import array
from contextlib import closing
from dataclasses import dataclass, replace

from raft.log.damage import Damage
from raft.log.log_format import CorruptLogError
from raft.log.segment_files import index_path, segment_path
from raft.log.segment_index import SegmentIndex, SegmentSummary, read_index, read_summary
from raft.log.segment_scan import Fragment, scan_segment
from raft.messages import Index, LogBase, Term
from raft.storage import Disk, DiskFile

__all__ = [
    "Rebuilt",
    "load_sidecar",
    "read_sidecar",
    "rebuild",
    "rebuild_closed",
    "rebuild_known",
]


@dataclass(slots=True, kw_only=True)
class Rebuilt:
    """Index of a segment. `term_runs` and `config_indexes` say nothing of damaged entries."""

    index: SegmentIndex
    term_runs: list[tuple[Index, Term]]
    config_indexes: list[Index]
    damage: Damage | None = None


def rebuild(
    at: LogBase,
    head: Fragment | None,
    tail: Fragment | None,
    end: LogBase,
    *,
    path: str,
    reason: str | None = None,
) -> Rebuilt:
    """Build the index from `head`, which continues `at`, and `tail`, which leads to `end`; both are
    the same fragment if nothing is damaged.

    Raises CorruptLogError where the known parts leave no room for a damage.
    """
    index = SegmentIndex(at)
    if head is not None and head is tail:
        _add(index, head)
        return Rebuilt(index=index, term_runs=head.term_runs, config_indexes=head.config_indexes)
    until = end.position if tail is None else tail.position
    until_index = end.index + 1 if tail is None else tail.first_index
    retained = head
    if head is not None and (head.end_position >= until or head.last_index >= until_index - 1):
        retained = None
    if retained is not None:
        _add(index, retained)
    damage = Damage(
        first_index=index.last_index + 1,
        last_index=until_index - 1,
        position=index.end_position,
        end_position=until,
        chain_before=index.chain(index.last_index),
        chain_after=end.chain if tail is None else tail.chain_before,
        path=path,
        reason=reason or (head and head.defect) or "these are not the entries that were here",
        entries_known=False,
        suspect=(at.index + 1, at.position) if index.offsets else None,
    )
    if damage.count < 1 or damage.position >= damage.end_position:
        raise CorruptLogError(path, damage.position, "no room for what is missing here")
    _add_unknown(index, damage)
    fragments = [fragment for fragment in (retained, tail) if fragment is not None]
    if tail is not None:
        _add(index, tail)
    return Rebuilt(
        index=index,
        term_runs=[run for fragment in fragments for run in fragment.term_runs],
        config_indexes=[config for fragment in fragments for config in fragment.config_indexes],
        damage=damage,
    )


def rebuild_closed(
    file: DiskFile, at: LogBase, end_position: int, after: LogBase | None, *, path: str
) -> Rebuilt:
    """Walk a closed segment. `after` is the place that it has to end at, where that is known.

    Raises OSError, and CorruptLogError where the extent of a damage isn't known.
    """
    fragments = scan_segment(file, at.position, index=at.index + 1, chain_before=at.chain)
    head, tail = fragments[0], fragments[-1]
    boundary = tail.boundary(end_position)
    if boundary is not None and after is not None and boundary != (after.index, after.chain):
        boundary = None
    if boundary is not None:
        after = LogBase(index=boundary[0], position=end_position, chain=boundary[1])
        tail.cut(end_position)
    if after is None:
        raise CorruptLogError(
            path,
            head.end_position,
            f"{head.defect}, and nothing tells which entries stood up to position {end_position}",
        )
    return rebuild(at, head, tail if boundary is not None else None, after, path=path)


def read_sidecar(disk: Disk, directory: str, position: int) -> SegmentSummary | None:
    """Return the summary beside the segment at `position`; None if it is missing or unreadable."""
    try:
        file = disk.open(index_path(directory, position), create=False)
    except FileNotFoundError:
        return None
    with closing(file):
        summary = read_summary(file)
    return summary if summary is not None and summary.position == position else None


def load_sidecar(disk: Disk, directory: str, summary: SegmentSummary) -> SegmentIndex | None:
    """Return the index beside a closed segment; None if it is missing or unreadable."""
    try:
        file = disk.open(index_path(directory, summary.position), create=False)
    except FileNotFoundError:
        return None
    with closing(file):
        return read_index(file, summary) if read_summary(file) == summary else None


def rebuild_known(disk: Disk, directory: str, summary: SegmentSummary) -> Rebuilt:
    """Rebuild the index of a closed segment from its bytes and its known summary."""
    path = segment_path(directory, summary.position)
    try:
        file = disk.open(path, create=False)
    except FileNotFoundError:
        reason = "the file is missing"
        found = rebuild(summary.before, None, None, summary.end, path=path, reason=reason)
    else:
        with closing(file):
            found = rebuild_closed(
                file, summary.before, summary.end_position, summary.end, path=path
            )
    if found.damage is not None:
        found.damage = replace(found.damage, terms_known=True)
    return found


def _add(index: SegmentIndex, fragment: Fragment) -> None:
    start = index.before.position
    index.offsets.extend(array("I", [position - start for position in fragment.positions]))
    index.chains.extend(fragment.chains)
    index.end_position = fragment.end_position


def _add_unknown(index: SegmentIndex, damage: Damage) -> None:
    """Add entries of unknown places: all stand at the damage's beginning."""
    for _ in range(damage.count):
        index.append(0, 0)
    index.chains[-1] = damage.chain_after
    index.end_position = damage.end_position
