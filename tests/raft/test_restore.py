"""What a start makes of a damaged log and a good snapshot that contains the damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from chaos.sim.machine.disk import SimDisk
from raft.config import RaftConfig
from raft.core.core import Core
from raft.log.damage import DamagedLogError
from raft.log.readable_log import ReadableLog
from raft.log.segment_log import SegmentLog
from raft.membership import Member, encode_membership, make_membership
from raft.messages import Entry, EntryKind, HardState, Index, LogBase, NodeId
from raft.snapshots.snapshot import SnapshotFiles, SnapshotHeader
from raft.store.restore import do_without, restore_newest
from tests.sim.disk_corruption import log_files

LAST, SNAPSHOT = 40, 30
MEMBERSHIP = make_membership(Member(node_id=NodeId(name)) for name in ("n1", "n2", "n3"))


class State:
    """A state machine that has nothing but its snapshot."""

    needs_indexing = False

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]:
        assert list(chunks) == [b"state"]
        return lambda: None

    def trim(self, position: int) -> None:
        pass


def opened(disk: SimDisk) -> SegmentLog:
    return SegmentLog(disk, "commitlog", segment_size_bytes_max=512)


def stored(*configs: Index) -> tuple[SimDisk, SnapshotFiles]:
    """A log with CONFIG entries at `configs`, and a snapshot at SNAPSHOT."""
    disk = SimDisk(random.Random(1))
    log = opened(disk)
    for index in range(1, LAST + 1):
        kind = EntryKind.CONFIG if index in configs else EntryKind.DATA
        payload = encode_membership(MEMBERSHIP) if index in configs else b"%02d" % index * 10
        log.append([Entry(index=index, term=index // 10 + 1, kind=kind, payload=payload)])
    log.sync()
    files = SnapshotFiles(disk)
    write(files, log, SNAPSHOT, max((index for index in configs if index <= SNAPSHOT), default=0))
    log.close()
    return disk, files


def write(files: SnapshotFiles, log: SegmentLog, index: Index, config_index: Index) -> None:
    last = LogBase(
        index=index, term=log.term(index), position=log.entry_end(index), chain=log.chain(index)
    )
    membership = encode_membership(MEMBERSHIP)
    header = SnapshotHeader(last=last, config_index=config_index, membership=membership)
    files.write(header, iter([b"state"]))


def core_of(log: SegmentLog, files: SnapshotFiles) -> Core:
    restored = restore_newest(log, files, State(), commit_index=0)  # type: ignore[arg-type]
    return Core(
        RaftConfig(node_id=NodeId("n1"), voters=(NodeId("n1"), NodeId("n2"), NodeId("n3"))),
        ReadableLog(log),
        HardState(current_term=9, voted_for=None),
        random.Random(1),
        0,
        commit_index=restored.commit_index,
        configuration=restored.configuration,
    )


@pytest.mark.parametrize("config_index", range(1, SNAPSHOT + 1))
@pytest.mark.parametrize("sidecar", [True, False])
def test_a_configuration_in_the_snapshot_need_not_be_read_again(
    config_index: Index, sidecar: bool
) -> None:
    """Each CONFIG entry's whole segment is lost, in turn."""
    disk, files = stored(config_index)
    position = opened(disk).position(config_index)
    path = max(path for path in log_files(disk) if int(path[-20:]) <= position)
    disk.lose(path)
    if not sidecar:
        disk.lose(f"{path}.index")
    log = opened(disk)
    assert log.damages
    if log.damages[-1].last_index > SNAPSHOT:
        assert not do_without(log, files), "the snapshot lacks some of it"
        return
    assert do_without(log, files)
    core = core_of(log, files)
    assert core.configuration.index == config_index
    assert core.commit_index == SNAPSHOT


def test_only_a_snapshot_that_may_contain_the_damage_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may be large, and peers are asked in vain again and again."""
    disk, files = stored(2, 35)
    disk.spoil(log_files(disk)[-1], b"")
    log = opened(disk)
    assert log.damages[-1].last_index > SNAPSHOT
    read: list[Index] = []
    verified = files.verified

    def counted(index: Index) -> SnapshotHeader:
        read.append(index)
        return verified(index)

    monkeypatch.setattr(files, "verified", counted)
    assert not do_without(log, files)
    assert read == []
    other = opened(SimDisk(random.Random(2)))
    for index in range(1, 51):
        other.append([Entry(index=index, term=1, kind=EntryKind.DATA, payload=b"other")])
    write(files, other, 45, 2)
    write(files, other, 50, 2)
    disk.spoil(files.path(50), b"")
    assert do_without(log, files), "the newest that is good"
    assert read == [50, 45]


def test_a_configuration_behind_the_snapshot_is_needed() -> None:
    disk, files = stored(2, 35)
    position = opened(disk).position(35)
    path = max(path for path in log_files(disk) if int(path[-20:]) <= position)
    disk.lose(path)
    log = opened(disk)
    assert not do_without(log, files)
    with pytest.raises(DamagedLogError):
        core_of(log, files)


def test_a_log_that_an_install_was_to_replace_is_emptied() -> None:
    """The snapshot was stored, the node killed before the log was reset, and its tail is damaged:
    it was never committed beyond the snapshot, and nobody has a copy."""
    disk, files = stored(2)
    other = opened(SimDisk(random.Random(2)))
    for index in range(1, 51):
        other.append([Entry(index=index, term=1, kind=EntryKind.DATA, payload=b"other")])
    write(files, other, 50, 2)
    disk.spoil(log_files(disk)[-1], b"")
    log = opened(disk)
    assert log.damages
    assert do_without(log, files)
    assert log.damages == ()
    assert (log.base.index, log.last_index) == (50, 50)
    assert core_of(log, files).commit_index == 50


@pytest.mark.parametrize("damaged", [(20,), (10, 20), (10,)])
def test_a_damaged_older_snapshot_hides_no_newer_one(damaged: tuple[Index, ...]) -> None:
    disk, files = stored(2)
    log = opened(disk)
    for index in (10, 20):
        write(files, log, index, 2)
    for index in damaged:
        disk.spoil(files.path(index), b"no snapshot")
    restored = restore_newest(log, files, State(), commit_index=0)  # type: ignore[arg-type]
    assert restored.applied_index == SNAPSHOT
    assert [base.index for base in restored.snapshots] == [
        index for index in (10, 20, SNAPSHOT) if index not in damaged
    ]
