"""A master alone: what it applies, when it answers, what a restart finds."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.entry.payload import UNIT, decode_payload
from broker.ha import state_keeper
from broker.ha.config import HaConfig
from broker.ha.engine import HaLog
from broker.ha.framing import HEAD_OVERHEAD
from broker.process.ha_entries import HaEntryReader
from campaigns.rig.waiting import until
from raft.log.disk import OsDisk, OsDiskFile
from raft.messages import NodeId
from raft.replicated_log import (
    LogFullError,
    NotLeaderError,
    ProposalResult,
    ProposalStatus,
    Slot,
)
from raft.snapshots.snapshot import SnapshotFiles, SnapshotHeader
from raft.store.checkpoint import WrongStoreError
from remoting.records.message import decode_record
from tests.broker.ha.payloads import payload_at
from tests.raft.node_group import Recorder

FILE_SIZE = 1 << 16
STATUS = ProposalStatus


def config(store: Path, **values: object) -> HaConfig:
    defaults: dict[str, object] = {
        "group": "broker-a",
        "node_id": NodeId("n0"),
        "peers": {NodeId("n0"): "127.0.0.1:0"},
        "master": NodeId("n0"),
        "store": store,
        "segment_size_bytes_max": FILE_SIZE,
    }
    return HaConfig(**{**defaults, **values})  # type: ignore[arg-type]


@asynccontextmanager
async def running(store: Path, **values: object) -> AsyncIterator[tuple[HaLog, Recorder]]:
    machine = Recorder()
    log = HaLog(config(store, **values), machine)
    await log.start()
    try:
        yield log, machine
    finally:
        await log.stop()


def fill(body: bytes, count: int = 1) -> Callable[[Slot], bytes]:
    return lambda slot: payload_at(slot.position, [body] * count)


async def write(log: HaLog, count: int, size: int = 1_000) -> list[ProposalResult]:
    return [await log.propose(fill(bytes(size))) for _ in range(count)]


async def test_a_proposal_is_applied_before_it_is_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, machine):
        assert log.status().ready
        future = log.propose(fill(b"one", 2))
        assert machine.entries == []
        result = await future
        assert (result.status, result.index) == (STATUS.COMMITTED, 1)
        (entry,) = machine.entries
        (run,) = decode_payload(entry.payload).runs
        for position, size, _ in UNIT.iter_unpack(run.units):
            assert decode_record(log.read(position, size)).body == b"one"
        assert await log.read_index() == 1


async def test_entries_go_on_in_the_next_file(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, machine):
        await write(log, 200)
        end = log.retention_bounds().end_position
        assert end > 3 * FILE_SIZE
        for entry in machine.entries:
            (run,) = decode_payload(entry.payload).runs
            (position, size, _) = UNIT.unpack(run.units)
            assert decode_record(log.read(position, size)).physical_offset == position
            assert entry.position + len(entry.payload) == position + size
    async with running(tmp_path) as (log, again):
        assert again.entries == machine.entries
        assert log.retention_bounds().end_position == end


async def test_a_clean_stop_leaves_a_snapshot_and_nothing_to_apply(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, machine):
        await write(log, 3)
    async with running(tmp_path) as (log, again):
        assert (again.restored_index, again.applied_count) == (3, 0)
        assert again.entries == machine.entries
        assert (await log.propose(fill(b"next"))).index == 4


async def test_without_a_stop_the_log_is_applied_again(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, machine):
        await write(log, 3)
        copy = tmp_path / "copy"
        copy.mkdir()
        for path in sorted(tmp_path.glob("ha/**/*")):
            target = copy / path.relative_to(tmp_path)
            if path.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        async with running(copy) as (_, again):
            assert (again.restored_index, again.applied_count) == (0, 3)
            assert again.entries == machine.entries


async def test_the_log_is_dropped_behind_two_snapshots(tmp_path: Path) -> None:
    async with running(tmp_path, snapshot_interval_size_bytes=FILE_SIZE) as (log, machine):
        while not log.status().begin_position:
            await write(log, 20)
            begin = await log.retain_from(log.retention_bounds().end_position)
        assert machine.trimmed_to == begin == log.status().begin_position
        with pytest.raises(LookupError):
            log.read(begin - 1, 1)
        assert log.status().first_index > 1
        first = machine.entries[log.status().first_index - 1]
        assert log.read(first.position, 1)
    async with running(tmp_path) as (log, again):
        assert again.entries == machine.entries
        assert log.status().begin_position == begin


async def test_files_are_dropped_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have their turns between two removals, which take a while each."""
    removed: list[int] = []
    remove = OsDisk.remove

    def noted(disk: OsDisk, path: str) -> None:
        if "commitlog" in path:
            removed.append(turns)
        remove(disk, path)

    def beside() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(beside)

    turns = 0
    monkeypatch.setattr(OsDisk, "remove", noted)
    async with running(tmp_path, snapshot_interval_size_bytes=3 * FILE_SIZE) as (log, machine):
        while (safe_position := log._keeper.safe_position) < 2 * FILE_SIZE:
            await write(log, 20)
        beside()
        begin = await log.retain_from(safe_position)
        assert machine.trimmed_to == begin == safe_position // FILE_SIZE * FILE_SIZE
        assert len(removed) == len(set(removed)) == begin // FILE_SIZE >= 2


async def test_a_snapshot_without_room_is_not_tried_at_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    write_file = SnapshotFiles.write

    def failing(files: SnapshotFiles, header: SnapshotHeader, content: Iterable[bytes]) -> int:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_file(files, header, content)

    monkeypatch.setattr(SnapshotFiles, "write", failing)
    monkeypatch.setattr(state_keeper, "_NO_ROOM_PAUSE_S", 60.0)
    async with running(tmp_path, snapshot_interval_size_bytes=FILE_SIZE) as (log, _):
        keeper, loop = log._keeper, asyncio.get_running_loop()
        while tries < 1:
            await write(log, 20)
        await until(lambda: keeper._not_before > loop.time(), "the write has failed")
        await write(log, 200)
        assert tries == 1
        keeper._not_before = loop.time()  # a minute later
        await write(log, 1)
        await until(lambda: tries == 2 and keeper._not_before > loop.time(), "another try")
        keeper._not_before = loop.time()
        await write(log, 1)
        await until(lambda: len(keeper._retained) == 1, "there is room again")


class Disk:
    """What `OsDiskFile` does in this process; a fsync waits while `held`, or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.free.set()
        self.error: OSError | None = None
        self.syncs = 0
        sync = OsDiskFile.sync

        def held(file: OsDiskFile) -> None:
            if threading.current_thread().name.startswith("ha-fsync"):
                self.syncs += 1
                self.free.wait()
                if self.error is not None:
                    raise self.error
            sync(file)

        monkeypatch.setattr(OsDiskFile, "sync", held)


async def test_flush_sync_answers_after_the_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with running(tmp_path, waits_for_disk=True, fsync_by="thread") as (log, _):
        disk.free.clear()
        futures = [log.propose(fill(b"%d" % number)) for number in range(5)]
        assert await log.read_index() == 5, "applied at once"
        assert not any(future.done() for future in futures)
        disk.free.set()
        results = await asyncio.gather(*futures)
        assert {result.status for result in results} == {STATUS.COMMITTED}
        assert disk.syncs <= 2, "one fsync answers all that wait"


async def test_a_slow_fsync_is_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    values = {"waits_for_disk": True, "fsync_by": "thread", "sync_flush_timeout_ms": 20}
    async with running(tmp_path, **values) as (log, machine):
        disk.free.clear()
        result = await log.propose(fill(b"slow"))
        assert result.status is STATUS.FLUSH_DISK_TIMEOUT
        assert not result.status.definite
        disk.free.set()
    async with running(tmp_path) as (_, again):
        assert again.entries == machine.entries, "it is stored all the same"


async def test_flush_async_answers_at_once_and_fsyncs_at_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with running(tmp_path, fsync_by="thread", flush_interval_ms=10) as (log, _):
        disk.free.clear()
        assert (await log.propose(fill(b"one"))).status is STATUS.COMMITTED
        store = log._store
        assert store is not None
        assert store.log.durable.position < store.log.end.position
        disk.free.set()
        await log._flusher.made_durable(store.log.end.position)
        assert store.log.durable == store.log.end


async def test_a_failed_fsync_stops_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with running(tmp_path, waits_for_disk=True, fsync_by="thread") as (log, _):
        disk.error = OSError(errno.EIO, "Input/output error")
        assert (await log.propose(fill(b"lost"))).status is STATUS.STOPPED
        assert await log.wait_failed() is disk.error
        with pytest.raises(NotLeaderError):
            log.propose(fill(b"more"))


async def test_a_full_disk_refuses_and_takes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = False
    allocate = OsDiskFile.allocate

    def failing(file: OsDiskFile, size: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(file, size)

    monkeypatch.setattr(OsDiskFile, "allocate", failing)
    async with running(tmp_path, flush_interval_ms=10) as (log, machine):
        full = True
        with pytest.raises(LogFullError):
            await write(log, 200)
        stored = len(machine.entries)
        assert not log.status().writable
        full = False
        await until(lambda: log.status().writable, "there is room again")
        assert (await log.propose(fill(b"more"))).index == stored + 1
    async with running(tmp_path) as (_, again):
        assert again.entries == machine.entries


async def test_sync_without_slaves_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, waits_for_slaves=True) as (log, machine):
        assert (await log.propose(fill(b"one"))).status is STATUS.SLAVE_NOT_AVAILABLE
        no_records = await log.propose(fill(b"", 0))
        assert no_records.status is STATUS.COMMITTED, "topics and offsets wait for no slave"
        assert len(machine.entries) == 2
    async with running(tmp_path, waits_for_slaves=True, in_sync_replicas=1) as (log, _):
        assert (await log.propose(fill(b"one"))).status is STATUS.COMMITTED


async def test_a_payload_that_fits_no_file_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, machine):
        with pytest.raises(ValueError, match="at most 65397 are allowed"):
            log.propose(fill(bytes(FILE_SIZE)))
        assert (await log.propose(fill(b"fits"))).index == 1
        assert len(machine.entries) == 1


async def test_only_where_an_entry_begins_one_is_read(tmp_path: Path) -> None:
    """Positions of an index may be of another log: a slave's was cut."""
    async with running(tmp_path) as (log, machine):
        await write(log, 3, size=50)
        reader = HaEntryReader(log)
        begins: dict[int, bytes | None] = {}
        for position in range(log.retention_bounds().end_position + 10):
            with contextlib.suppress(LookupError):
                begins[position] = reader.read(position).payload
        payloads = [entry.payload for entry in machine.entries]
        starts = [entry.position - HEAD_OVERHEAD for entry in machine.entries]
        assert [begins[start] for start in starts] == payloads


async def test_a_store_of_another_engine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hard_state").write_bytes(b"x")
    with pytest.raises(WrongStoreError, match="another engine"):
        await HaLog(config(tmp_path), Recorder()).start()


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"master": NodeId("n7")}, "master"),
        ({"in_sync_replicas": 0}, "in_sync_replicas"),
        ({"segment_size_bytes_max": 1_000}, "segment_size_bytes_max"),
        ({"fsync_by": "uring"}, "fsync_by"),
    ],
)
def test_settings_out_of_range_are_named(tmp_path: Path, values: dict[str, object], what: str):
    with pytest.raises(ValueError, match=what):
        config(tmp_path, **values)
