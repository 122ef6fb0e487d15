"""When snapshots count, which are kept, and what happens when an install comes in between."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from campaigns.rig.waiting import until
from raft.log.disk import OsDisk
from raft.log.segment_log import SegmentLog
from raft.membership import (
    Configuration,
    Member,
    Membership,
    encode_membership,
    make_membership,
)
from raft.messages import Entry, EntryKind, Index, LogBase, NodeId
from raft.replicated_log import Snapshot
from raft.snapshots.snapshot import SnapshotFiles, SnapshotHeader
from raft.snapshots.snapshot_keeper import SnapshotKeeper
from tests.raft.node_group import Recorder

MEMBERSHIP = make_membership([Member(node_id=NodeId("n0"))])
SEGMENT_SIZE = 1 << 12
PER_SEGMENT = 4


@dataclass
class Image:
    """A snapshot whose writing waits until it is let go on."""

    go_on: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def encode(self) -> Iterator[bytes]:
        yield b"state"
        self.begun.set()
        assert self.go_on.wait(10)
        yield b"its end"


class Machine(Recorder):
    """Its captures are prepared by the test."""

    def __init__(self, images: Sequence[Image]) -> None:
        super().__init__()
        self.images = list(images)

    def capture(self) -> Snapshot:  # type: ignore[override]  # another image than a Recorder's
        return self.images.pop(0)


class Rig:
    def __init__(self, store: Path, images: Sequence[Image]) -> None:
        disk = OsDisk(store)
        self.log = SegmentLog(disk, "commitlog", segment_size_bytes_max=SEGMENT_SIZE)
        self.files = SnapshotFiles(disk)
        self.machine = Machine(images)
        self.keeper = SnapshotKeeper(
            self.log,
            self.files,
            self.machine,
            interval_size_bytes=0,
            configuration_at=self.configuration_at,
            on_written=lambda state: self.written.append((state.index, state.digest)),
        )
        self.written: list[tuple[Index, int]] = []
        self.known_from_index = 0  # before it nobody has told this node of the group
        self.append(5 * PER_SEGMENT)

    def configuration_at(self, index: Index) -> Configuration:
        known = index >= self.known_from_index
        return Configuration(index=0, membership=MEMBERSHIP if known else Membership())

    def append(self, count: int) -> None:
        last = self.log.last_index
        entries = [
            Entry(index=last + 1 + at, term=1, kind=EntryKind.DATA, payload=bytes(900))
            for at in range(count)
        ]
        self.log.append(entries)

    def receive(self, index: Index) -> LogBase:
        """A snapshot comes whole from a leader."""
        last = LogBase(index=index, term=1, position=1000 * index, chain=7)
        header = SnapshotHeader(last=last, config_index=0, membership=encode_membership(MEMBERSHIP))
        self.files.write(header, [b"installed"])
        return last


@contextlib.asynccontextmanager
async def running(store: Path, *images: Image) -> AsyncIterator[Rig]:
    rig = Rig(store, images)
    task = asyncio.create_task(rig.keeper.run())
    try:
        yield rig
    finally:
        for image in images:
            image.go_on.set()
        task.cancel()
        await asyncio.wait([task])
        rig.log.close()


def let_go() -> Image:
    image = Image()
    image.go_on.set()
    return image


async def test_two_are_kept_and_the_log_behind_the_older(tmp_path: Path) -> None:
    async with running(tmp_path, let_go(), let_go(), let_go()) as rig:
        assert rig.keeper.safe_position == 0
        for number in (1, 2, 3):
            rig.keeper.segment_ended(number * PER_SEGMENT)
            await until(lambda: rig.keeper._settled, "it was written")
            assert rig.keeper.newest_index == number * PER_SEGMENT
        assert rig.keeper.safe_position == rig.log.entry_end(2 * PER_SEGMENT)
        expected = [2 * PER_SEGMENT, 3 * PER_SEGMENT]
        await until(lambda: rig.files.indexes() == expected, "the oldest is removed")


async def test_each_state_that_is_durable_is_told_with_the_digest_of_its_bytes(
    tmp_path: Path,
) -> None:
    """XXH3-64 of "stateits end", as a signed integer; the bytes are what counts, not the chunks."""
    digest = xxh3_64_intdigest(b"stateits end")
    signed = digest - (1 << 64) if digest >= 1 << 63 else digest
    async with running(tmp_path, let_go(), let_go()) as rig:
        rig.keeper.segment_ended(PER_SEGMENT)
        await until(lambda: rig.keeper._settled, "it was written")
        assert rig.written == [(PER_SEGMENT, signed)]
        await asyncio.to_thread(rig.keeper.write_last, 2 * PER_SEGMENT)
        assert rig.written == [(PER_SEGMENT, signed), (2 * PER_SEGMENT, signed)]


async def test_a_snapshot_that_an_install_has_overtaken_does_not_count(tmp_path: Path) -> None:
    slow = Image()
    async with running(tmp_path, let_go(), slow, let_go()) as rig:
        rig.keeper.segment_ended(PER_SEGMENT)
        await until(lambda: rig.keeper._settled, "it was written")
        rig.keeper.segment_ended(2 * PER_SEGMENT)
        await until(slow.begun.is_set, "it is being written")
        last = rig.receive(100)
        rig.keeper.installed(last)
        slow.go_on.set()
        await until(lambda: rig.files.indexes() == [PER_SEGMENT, 100], "it is removed")
        assert rig.keeper.newest_index == 100
        assert rig.keeper.safe_position == rig.log.entry_end(PER_SEGMENT)


async def test_what_was_received_outlives_the_end_of_a_write(tmp_path: Path) -> None:
    """The core has not heard of it yet; once it has, the log is emptied for it."""
    slow = Image()
    async with running(tmp_path, let_go(), let_go(), slow) as rig:
        for number in (1, 2):
            rig.keeper.segment_ended(number * PER_SEGMENT)
            await until(lambda: rig.keeper._settled, "it was written")
            assert rig.keeper.newest_index == number * PER_SEGMENT
        rig.keeper.segment_ended(3 * PER_SEGMENT)
        await until(slow.begun.is_set, "it is being written")
        rig.receive(100)
        slow.go_on.set()
        expected = [2 * PER_SEGMENT, 3 * PER_SEGMENT, 100]
        await until(lambda: rig.files.indexes() == expected, "only the oldest is removed")
        rig.files.verified(100)


async def test_the_last_one_waits_for_the_one_that_is_being_written(tmp_path: Path) -> None:
    slow, last = Image(), let_go()
    async with running(tmp_path, slow, last) as rig:
        rig.keeper.segment_ended(PER_SEGMENT)
        await until(slow.begun.is_set, "it is being written")
        writing = asyncio.create_task(asyncio.to_thread(rig.keeper.write_last, 2 * PER_SEGMENT))
        await until(lambda: not rig.machine.images, "it was captured")
        assert not last.begun.is_set()
        slow.go_on.set()
        await writing
        assert rig.files.indexes()[-1] == 2 * PER_SEGMENT
        rig.files.verified(2 * PER_SEGMENT)


async def test_a_full_disk_costs_a_snapshot_not_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(header: SnapshotHeader, chunks: object) -> int:
        raise OSError(28, "No space left on device")

    async with running(tmp_path, let_go(), let_go()) as rig:
        with monkeypatch.context() as full:
            full.setattr(rig.files, "write", no_room)
            rig.keeper.segment_ended(PER_SEGMENT)
            await until(lambda: rig.keeper._settled, "it was given up")
        assert rig.keeper.newest_index == 0
        assert rig.written == []
        rig.keeper.segment_ended(2 * PER_SEGMENT)
        await until(lambda: rig.keeper.newest_index == 2 * PER_SEGMENT, "the next one counts")


async def test_none_is_taken_while_nobody_told_who_belongs_to_the_group(tmp_path: Path) -> None:
    """A node that joined a group whose first members stand in no entry."""
    async with running(tmp_path, let_go()) as rig:
        rig.known_from_index = PER_SEGMENT + 1
        rig.keeper.segment_ended(PER_SEGMENT)
        rig.keeper.write_last(PER_SEGMENT)
        assert rig.files.indexes() == []
        rig.keeper.segment_ended(2 * PER_SEGMENT)
        await until(lambda: rig.keeper.newest_index == 2 * PER_SEGMENT, "the next one counts")
