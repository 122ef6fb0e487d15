"""Syncs of the log that the kernel carries out beside the loop: what they claim, and when."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from chaos.sim.machine.disk import DiskFault, SimDisk, Survival
from chaos.sim.machine.sync_lock import SyncLock
from raft.log.durable_mark import Mark
from raft.log.hard_state import HardStateFile
from raft.log.segment_log import SegmentLog, SyncedTo
from raft.messages import Entry, EntryKind, HardState, Index, NodeId, Term
from raft.node.group_commit import GroupCommit, SyncRound

_SEGMENT_SIZE = 4 * 144


class _Rig:
    """A log whose disk carries syncs out when it is told to."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(1))
        self.works: list[Callable[[], None]] = []
        self.reports: list[Callable[[], None]] = []
        self.told: list[OSError | None] = []
        self.disk.kernel = self
        self.file = HardStateFile(self.disk)
        self.file.load()
        self.log = SegmentLog(
            self.disk, "commitlog", hard_state=self.file, segment_size_bytes_max=_SEGMENT_SIZE
        )
        self.log.begins_syncs = True

    def begin_sync(self, work: Callable[[], None], report: Callable[[], None]) -> None:
        self.works.append(work)
        self.reports.append(report)

    def report_soon(self, report: Callable[[], None]) -> None:
        """It is among `reports`."""

    def want(self, term: Term) -> None:
        self.file.want(HardState(current_term=term, voted_for=NodeId("n1")))

    def append(self, term: Term, count: int = 1) -> None:
        for _ in range(count):
            index = self.log.last_index + 1
            entry = Entry(index=index, term=term, kind=EntryKind.DATA, payload=bytes(100))
            self.log.append([entry])

    def begin(self) -> bool:
        return self.log.begin_sync(self.told.append)

    def end(self) -> None:
        self.works.pop(0)()
        self.reports.pop(0)()

    @property
    def marked(self) -> Index:
        mark = self.log._mark.peek()
        assert isinstance(mark, Mark)
        return mark.cut.index

    def after_power_failure(self) -> SegmentLog:
        self.disk.power_failure(Survival.NONE)
        hard_state = HardStateFile(self.disk)
        hard_state.load()
        return SegmentLog(
            self.disk, "commitlog", hard_state=hard_state, segment_size_bytes_max=_SEGMENT_SIZE
        )


@pytest.fixture
def rig() -> _Rig:
    made = _Rig()
    made.file.save(HardState(current_term=1, voted_for=None))
    return made


def test_only_what_was_there_is_claimed_and_only_once_it_is_done(rig: _Rig) -> None:
    rig.append(1, 2)
    assert rig.begin()
    rig.append(1)
    rig.works[0]()
    assert rig.marked == 0, "done, and not reported"
    rig.end()
    assert rig.told == [None]
    assert rig.marked == 2
    assert rig.after_power_failure().last_index >= 2


def test_one_at_a_time(rig: _Rig) -> None:
    rig.append(1)
    assert rig.begin()
    assert not rig.begin()
    rig.end()
    assert rig.begin()


def test_a_hard_state_that_waits_is_saved_first(rig: _Rig) -> None:
    """An entry of its term, or a vote alone: either needs a thread."""
    rig.want(2)
    assert not rig.begin(), "a vote"
    rig.append(2)
    assert not rig.begin()
    assert rig.log.sync() == SyncedTo(index=1, term=2)
    assert rig.file.durable_term == 2
    assert rig.begin()


def test_an_entry_whose_hard_state_waits_is_not_claimed_by_a_sync_before_it(rig: _Rig) -> None:
    """The fsync covers it, perhaps; a power failure after that finds no claim of it."""
    rig.append(1)
    assert rig.begin()
    rig.want(2)
    rig.append(2)
    rig.end()
    assert rig.marked == 1
    assert rig.file.durable_term == 1
    assert rig.after_power_failure().last_term <= 2, "it starts"


def test_a_truncation_waits_for_it(rig: _Rig) -> None:
    rig.append(1, 3)
    assert rig.begin()
    rig.log.truncate_from(2)
    assert rig.marked == 1, "what was claimed meanwhile is taken back"
    rig.append(1)
    assert rig.told == [], "the loop tells"
    rig.reports[0]()
    assert rig.told == [None]
    assert rig.marked == 1, "and claims nothing more"
    assert rig.begin()


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(lambda rig: rig.append(1, 2), id="end of a segment"),
        pytest.param(lambda rig: rig.log.truncate_from(2), id="truncation"),
        pytest.param(lambda rig: rig.log.sync(), id="another thread"),
    ],
)
def test_its_failure_is_known_before_anybody_claims(
    rig: _Rig, claim: Callable[[_Rig], object]
) -> None:
    """A second fsync of the file would succeed without the pages that the first has lost."""
    rig.append(1, 3)
    rig.log._sync_lock = SyncLock(rig.log)  # type: ignore[assignment]  # as good as a lock
    assert rig.begin()
    rig.disk.fault = DiskFault(operation="sync", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        claim(rig)
    assert rig.marked == 0
    rig.reports[0]()
    assert rig.told[0] is not None
    assert not rig.begin(), "nothing is written any more"
    assert rig.after_power_failure().last_index == 0


def test_a_failure_is_reported_and_stops_the_log(rig: _Rig) -> None:
    rig.append(1)
    assert rig.begin()
    rig.disk.fault = DiskFault(operation="sync", error=errno.EIO)
    rig.end()
    assert [error.errno for error in rig.told if error is not None] == [errno.EIO]
    assert rig.marked == 0
    with pytest.raises(OSError, match="the log stopped after"):
        rig.append(1)


def test_a_mark_that_can_not_be_written_is_reported(rig: _Rig) -> None:
    rig.append(1)
    assert rig.begin()
    rig.works[0]()
    rig.disk.fault = DiskFault(operation="write", error=errno.EIO)
    rig.reports[0]()
    assert [error.errno for error in rig.told if error is not None] == [errno.EIO]


def test_a_log_is_closed_while_its_disk_hangs(rig: _Rig) -> None:
    rig.append(1)
    assert rig.begin()
    rig.log.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_round_of_the_log_alone_needs_no_thread(rig: _Rig, fails: bool) -> None:
    rounds: list[tuple[SyncRound, BaseException | None]] = []
    threads: list[object] = []
    commit = GroupCommit(
        rig.log,
        rig.file,
        lambda done, error: rounds.append((done, error)),
        lambda steps, done: threads.append((steps, done)),
    )
    rig.append(1)
    commit.want_log()
    commit.begin()
    rig.append(1)
    commit.want_log()
    commit.begin()
    assert len(rig.works) == 1, "one round at a time"
    assert commit.running_for_s > 0
    if fails:
        rig.disk.fault = DiskFault(operation="sync", error=errno.EIO)
    rig.end()
    [(done, error)] = rounds
    assert done.durable == SyncedTo(index=1, term=1)
    assert isinstance(error, OSError) == fails
    commit.begin()
    assert len(rig.works) == (0 if fails else 1), "no round follows one that failed"
    assert threads == []


def test_a_round_with_a_hard_state_takes_the_thread(rig: _Rig) -> None:
    steps: list[Callable[[], object]] = []
    commit = GroupCommit(
        rig.log, rig.file, lambda done, error: None, lambda them, done: steps.extend(them)
    )
    commit.want_hard_state(HardState(current_term=2, voted_for=NodeId("n1")), own_vote=True)
    rig.append(2)
    commit.want_log()
    commit.begin()
    assert rig.works == []
    assert steps == [rig.file.persist, rig.log.sync]
