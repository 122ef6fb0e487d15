"""Rounds that make term, vote and log durable: what a stop leaves of those not begun."""

from __future__ import annotations

import errno
import random
import threading

import pytest

from campaigns.rig.waiting import until
from chaos.sim.machine.disk import DiskFault, SimDisk, Survival
from raft.log.hard_state import HardStateFile
from raft.log.segment_log import SegmentLog, SyncedTo
from raft.messages import Entry, EntryKind, HardState, NodeId
from raft.node.group_commit import GroupCommit, SyncRound, SyncThread


class _SlowFile(HardStateFile):
    """Its saves wait until they are let go on."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk)
        self.go_on = threading.Event()
        self.begun = threading.Event()

    def persist(self) -> None:
        self.begun.set()
        assert self.go_on.wait(10)
        super().persist()


class _Rig:
    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(1))
        self.file = _SlowFile(self.disk)
        self.log = SegmentLog(self.disk, "commitlog", hard_state=self.file)
        self.told: list[tuple[SyncRound, BaseException | None]] = []
        self.thread = SyncThread()
        self.rounds = GroupCommit(
            self.log,
            self.file,
            lambda done, error: self.told.append((done, error)),
            self.thread.carry_out,
        )

    async def stop(self) -> None:
        await self.rounds.stop()
        await self.thread.stop()

    def want(self, term: int) -> None:
        """What a follower's Ready wants that takes a first entry of the term."""
        self.rounds.want_hard_state(
            HardState(current_term=term, voted_for=NodeId("n1")), own_vote=False
        )
        entry = Entry(index=self.log.last_index + 1, term=term, kind=EntryKind.NOOP, payload=b"")
        self.log.append([entry])
        self.rounds.want_log()

    def after_power_failure(self) -> tuple[int, int]:
        """The terms of the hard state and of the last entry that are found then."""
        self.disk.power_failure(Survival.NONE)
        hard_state = HardStateFile(self.disk)
        hard_state.load()
        log = SegmentLog(self.disk, "commitlog", hard_state=hard_state)
        return hard_state.durable_term, log.last_term


async def test_a_stop_makes_durable_what_no_round_was_begun_for() -> None:
    rig = _Rig()
    rig.want(1)
    rig.rounds.begin()
    await until(rig.file.begun.is_set, "the first round is under way")
    rig.want(2)
    rig.rounds.begin()  # it waits for the first
    rig.file.go_on.set()
    await rig.stop()
    assert len(rig.told) == 1
    rig.rounds.persist_rest()
    assert rig.after_power_failure() == (2, 2)


async def test_a_stop_waits_for_the_round_under_way() -> None:
    rig = _Rig()
    rig.want(1)
    rig.rounds.begin()
    threading.Timer(0.05, rig.file.go_on.set).start()
    await rig.stop()
    assert [error for _, error in rig.told] == [None]
    rig.rounds.persist_rest()
    assert rig.after_power_failure() == (1, 1)


async def test_no_entry_becomes_durable_behind_a_hard_state_that_did_not() -> None:
    rig = _Rig()
    rig.file.go_on.set()
    rig.want(1)
    rig.disk.fault = DiskFault(operation="write", error=errno.EIO)
    rig.rounds.begin()
    await rig.stop()
    assert isinstance(rig.told[0][1], OSError)
    with pytest.raises(OSError, match="Input/output error"):
        rig.rounds.persist_rest()
    assert rig.after_power_failure() == (0, 0)


async def test_an_fsync_that_covers_the_next_round_saves_its_hard_state_first() -> None:
    """The entries of round 2 are on the disk, and claimed, before round 2 is begun."""
    rig = _Rig()
    rig.want(1)
    rig.rounds.begin()
    await until(rig.file.begun.is_set, "the first round is under way")
    rig.want(2)
    rig.file.go_on.set()
    await until(lambda: bool(rig.told), "the first round is over")
    assert rig.told[0][0].durable == SyncedTo(index=1, term=1), "no more than it was begun with"
    assert rig.after_power_failure() == (2, 2)


async def test_after_a_failed_save_no_other_thread_claims_an_entry_of_its_term() -> None:
    rig = _Rig()
    rig.file.go_on.set()
    rig.want(1)
    rig.disk.fault = DiskFault(operation="sync", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        rig.log.sync()
    with pytest.raises(OSError, match="the hard state stopped after"):
        rig.file.persist()
    with pytest.raises(OSError, match="the log stopped after"):
        rig.log.sync()
    assert rig.after_power_failure() == (0, 0)


async def test_a_stop_without_anything_to_do_syncs_the_log() -> None:
    rig = _Rig()
    rig.file.go_on.set()
    rig.log.append([Entry(index=1, term=0, kind=EntryKind.NOOP, payload=b"")])
    await rig.stop()
    rig.rounds.persist_rest()
    rig.disk.power_failure(Survival.NONE)
    assert SegmentLog(rig.disk, "commitlog").last_index == 1
