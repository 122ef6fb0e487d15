"""What the state machine is given, in which pieces, and when a segment is told to have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from raft.log.damage import DamagedLogError
from raft.log.disk import OsDisk
from raft.log.log_format import HEADER_SIZE
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, EntryKind, Index, NodeId
from raft.node.applier import Applier
from raft.node.open_proposals import OpenProposals
from raft.node.trace_events import TraceEvents
from raft.replicated_log import CommittedEntry
from tests.raft.node_group import Recorder

TERM = 1
PAYLOAD_SIZE = 956  # with its header 1000 bytes
PER_SEGMENT = 5


class Ranges:
    """Stands where a trace is written: the ranges that were told as applied."""

    dirty = False

    def __init__(self) -> None:
        self.ranges: list[tuple[Index, Index]] = []

    def record(self, event: str, term: int, **fields: Any) -> None:
        if event == "apply":
            self.ranges.append((fields["first"], fields["index"]))


class Rig:
    """A log of small segments; `ends` has (index told, index applied last by then)."""

    def __init__(self, store: Path, machine: Recorder | None = None) -> None:
        self.store = store
        self.log = SegmentLog(OsDisk(store), "commitlog", segment_size_bytes_max=PER_SEGMENT * 1000)
        self.machine = machine or Recorder()
        self.trace = Ranges()
        self.ends: list[tuple[Index, int]] = []
        self.applier = Applier(
            self.log,
            self.machine,
            OpenProposals(),
            TraceEvents(self.trace, self.log, NodeId("n0"), TERM),  # type: ignore[arg-type]  # a sink
            on_segment_end=self.on_segment_end,
        )
        self.applier.begin_at(0, 0)

    def on_segment_end(self, index: Index) -> None:
        self.ends.append((index, self.applier.applied_index))

    def forget_cached(self) -> None:
        """As where the log is longer than memory: entries are read from the disk."""
        self.log.close()
        self.log = SegmentLog(
            OsDisk(self.store), "commitlog", segment_size_bytes_max=PER_SEGMENT * 1000
        )
        self.applier._log = self.log

    def append(self, count: int) -> None:
        last = self.log.last_index
        self.log.append(
            [
                Entry(index=index, term=TERM, kind=EntryKind.DATA, payload=bytes(PAYLOAD_SIZE))
                for index in range(last + 1, last + 1 + count)
            ]
        )

    def apply(self, commit_index: Index | None = None) -> None:
        limit = self.log.last_index if commit_index is None else commit_index
        while self.applier.applied_index < limit:
            self.applier.turn(limit, TERM)


@pytest.fixture
def rig_at(tmp_path: Path) -> Callable[[], Rig]:
    return lambda: Rig(tmp_path)


def segment_ends(count: int) -> list[tuple[Index, int]]:
    """Told with exactly what was applied up to there."""
    return [(index, index) for index in range(PER_SEGMENT, count + 1, PER_SEGMENT)]


def test_a_follower_hears_of_each_segment_at_its_end(rig_at: Callable[[], Rig]) -> None:
    """It has more of the log than it applies: calls are cut where segments end."""
    rig = rig_at()
    rig.append(4 * PER_SEGMENT + 2)
    rig.apply()
    assert [entry.index for entry in rig.machine.entries] == list(range(1, 23))
    assert rig.ends == segment_ends(20)


def test_a_leader_hears_of_each_segment_with_the_entry_that_ends_it(
    rig_at: Callable[[], Rig],
) -> None:
    """It applies the last entry of a segment before it knows that it was the last."""
    rig = rig_at()
    for count in range(1, 4 * PER_SEGMENT + 3):
        rig.append(1)
        rig.apply()
        assert rig.ends == segment_ends(count - 1), "not before the next one comes, and once"
    assert len(rig.machine.entries) == 22


@pytest.mark.parametrize("behind", range(1, PER_SEGMENT + 2))
def test_no_end_is_missed_or_told_twice_however_far_the_log_is_ahead(
    rig_at: Callable[[], Rig], behind: int
) -> None:
    rig = rig_at()
    for count in range(1, 6 * PER_SEGMENT):
        rig.append(1)
        if count > behind:
            rig.apply(count - behind)
    rig.apply()
    rig.append(1)
    rig.apply()
    assert rig.ends == segment_ends(rig.log.last_index - 1)


@pytest.mark.parametrize("restored", [PER_SEGMENT - 1, PER_SEGMENT, PER_SEGMENT + 1])
def test_what_a_restored_state_contains_passes_by_and_ends_no_segment(
    tmp_path: Path, restored: int
) -> None:
    """But for one that it ends with: what would be captured elsewhere is not the state there."""

    class Indexing(Recorder):
        passed: tuple[Index, ...] = ()

        def index_only(self, entries: Sequence[CommittedEntry]) -> None:
            self.passed += tuple(entry.index for entry in entries)

        def apply(self, entries: Sequence[CommittedEntry]) -> None:
            self.entries += entries

    machine = Indexing()
    rig = Rig(tmp_path, machine)
    rig.append(3 * PER_SEGMENT + 1)
    rig.applier.begin_at(0, restored)
    rig.apply()
    assert machine.passed == tuple(range(1, restored + 1))
    applied = [entry.index for entry in machine.entries]
    assert applied == list(range(restored + 1, 3 * PER_SEGMENT + 2))
    told = [index for index, _ in rig.ends]
    assert told == [end for end in (5, 10, 15) if end >= restored]
    assert all(index == last for index, last in rig.ends)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_what_retention_drops_while_it_is_to_pass_by_is_passed_over(
    tmp_path: Path, is_damaged: bool
) -> None:
    """The state contains it, and files derived from the log begin where the log does: also where
    a damage that nobody can mend has held the node up."""

    class Indexing(Recorder):
        passed: tuple[Index, ...] = ()

        def index_only(self, entries: Sequence[CommittedEntry]) -> None:
            self.passed += tuple(entry.index for entry in entries)

        def apply(self, entries: Sequence[CommittedEntry]) -> None:
            self.entries += entries

    machine = Indexing()
    rig = Rig(tmp_path, machine)
    rig.append(4 * PER_SEGMENT)
    rig.applier.begin_at(0, 3 * PER_SEGMENT)
    if is_damaged:
        with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(2 * 1000 + HEADER_SIZE)
            file.write(b"rotten")
        rig.forget_cached()
        with pytest.raises(DamagedLogError):
            rig.apply()
    else:
        rig.apply(2)
    assert machine.passed == (1, 2)
    rig.log.drop_before(2 * PER_SEGMENT * 1000)
    rig.apply()
    assert machine.passed == (1, 2, *range(2 * PER_SEGMENT + 1, 3 * PER_SEGMENT + 1))
    applied = [entry.index for entry in machine.entries]
    assert applied == list(range(3 * PER_SEGMENT + 1, 4 * PER_SEGMENT + 1))
    assert rig.trace.ranges == [(1, 2), (3, 10), *rig.trace.ranges[2:]], "without a gap"
    assert all(a[1] + 1 == b[0] for a, b in pairwise(rig.trace.ranges))
