"""A node's life with snapshots: restarts that replay little, logs that begin late, installs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from campaigns.rig.waiting import turns, until
from raft.log.log_format import CorruptLogError
from raft.messages import InstallSnapshot, PeerMessage
from tests.raft.node_group import Group, Recorder, trace_of
from tests.raft.snapshot_group import (
    ENTRIES_PER_SEGMENT,
    settled,
    shortened,
    snapshots,
    two_snapshots,
    write,
)


@contextlib.asynccontextmanager
async def running(store: Path, count: int = 3, **changes: object) -> AsyncIterator[Group]:
    group = Group(store, count, snapshot_interval_size_bytes=0, **changes)
    try:
        await group.start()
        yield group
    finally:
        await group.stop()


# --- restart -------------------------------------------------------------------------------------


async def test_after_a_clean_stop_nothing_is_applied_again(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        written = await write(group, 10)
        await group.nodes.pop("n0").stop()
        await group.start("n0")
        machine = group.machines["n0"]
        assert machine.data() == written
        await group.leader()
        assert machine.applied_count == 1, "the no-op of the new term alone"
        assert machine.restored_index == len(machine.entries) - 1


async def test_after_a_kill_the_replay_begins_where_a_segment_ended(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        written = await write(group, 3 * ENTRIES_PER_SEGMENT)
        kept = await two_snapshots(group, tmp_path, written)
        log = group.nodes["n0"]._store.log
        for index in kept:
            assert log.segment_last_index(index) == index, "the last of its segment"
        assert group.machines["n0"].synced_count >= 2, "derived files are made durable first"
        last = log.last_index
        await group.crash("n0")
        await group.start("n0")
        machine = group.machines["n0"]
        await until(lambda: machine.data() == written, "replayed")
        assert machine.restored_index == kept[-1]
        assert machine.applied_count <= last - kept[-1] + 1


async def test_a_damaged_snapshot_is_not_used_the_one_before_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, 1) as group:
        written = await write(group, 3 * ENTRIES_PER_SEGMENT)
        older, newer = await two_snapshots(group, tmp_path, written)
        await group.crash("n0")
        path = tmp_path / "n0" / "snapshots" / f"{newer:020d}.snapshot"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        await group.start("n0")
        machine = group.machines["n0"]
        assert machine.restored_index == older
        await until(lambda: machine.data() == written, "replayed")
        assert "a snapshot is damaged and not used" in caplog.text


async def test_a_start_says_what_it_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path, 1) as group:
        await write(group, 2 * ENTRIES_PER_SEGMENT)
        await settled(group)
        await group.crash("n0")
        caplog.clear()
        await group.start("n0")
    assert "the log holds entries 1.." in caplog.text
    assert "without a clean stop, term 1" in caplog.text
    for phase in ("lock", "marks", "segments", "snapshots"):
        assert f"{phase} 0." in caplog.text
    assert "restored the snapshot at" in caplog.text


# --- a log that begins late ----------------------------------------------------------------------


async def test_the_log_keeps_what_the_older_snapshot_needs(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        written = await write(group, 4 * ENTRIES_PER_SEGMENT)
        older, _ = await two_snapshots(group, tmp_path, written)
        node, machine = group.nodes["n0"], group.machines["n0"]
        bounds = node.retention_bounds()
        assert bounds.begin_position == 0
        needed = node._store.log.entry_end(older)
        begin = await node.retain_from(bounds.end_position)
        status = node.status()
        assert begin == status.begin_position == needed == machine.trimmed_to
        assert status.first_index == older + 1
        with pytest.raises(LookupError):
            node.read(0, 100)
        more = await write(group, 10, len(written))
        await group.crash("n0")
        await group.start("n0")
        machine = group.machines["n0"]
        await until(lambda: machine.data() == written + more, "restored and replayed")
        assert machine.trimmed_to == begin


async def test_the_loop_goes_on_between_two_removals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day's log may be thousands of segments, each of which takes long to remove."""
    monkeypatch.setattr("raft.node.log_compaction._DROP_PAUSE_S", 0.001)
    async with running(tmp_path, 1) as group:
        await two_snapshots(group, tmp_path, await write(group, 14 * ENTRIES_PER_SEGMENT))
        node = group.nodes["n0"]
        directory = tmp_path / "n0" / "commitlog"

        def segments() -> int:
            return sum(path.name.isdecimal() for path in directory.iterdir())

        before = seen = segments()
        retaining = asyncio.create_task(node.retain_from(1 << 40))
        while not retaining.done():
            await turns(1)
            assert seen - segments() <= 2
            seen = segments()
        assert before - seen >= 5
        assert await retaining == node._snapshots.safe_position


async def test_what_retention_lets_go_is_not_kept_for_snapshots_that_are_far_apart(
    tmp_path: Path,
) -> None:
    """Two that come at once free it; without anything to free there are none before their time."""
    group = Group(tmp_path, 1, snapshot_interval_size_bytes=1 << 30)
    try:
        await group.start()
        node = group.nodes["n0"]
        written = await write(group, 4 * ENTRIES_PER_SEGMENT)
        old_position = 2 << 16  # what stands below it is two whole segments, or little more
        assert await node.retain_from(old_position) == 0
        for _ in range(2):
            written += await write(group, ENTRIES_PER_SEGMENT, len(written))
            await settled(group)
            await node.retain_from(old_position)
        begin = node.status().begin_position
        assert begin == node._store.log.base.position > 0
        assert node._store.log.first_segment_end > old_position, "all of it is gone"
        kept = snapshots(tmp_path, "n0")
        assert len(kept) == 2
        for _ in range(3):
            written += await write(group, ENTRIES_PER_SEGMENT, len(written))
            await settled(group)
            assert await node.retain_from(old_position) == begin
        assert snapshots(tmp_path, "n0") == kept, "nothing is held back any more"
        await group.crash("n0")
        await group.start("n0")
        machine = group.machines["n0"]
        await until(lambda: machine.data() == written, "restored and replayed")
    finally:
        await group.stop()


async def test_without_any_good_snapshot_a_late_log_is_not_started_on(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as group:
        await shortened(group, await write(group, 4 * ENTRIES_PER_SEGMENT))
        await group.crash("n0")
        for path in (tmp_path / "n0" / "snapshots").iterdir():
            path.write_bytes(b"rotten")
        with pytest.raises(CorruptLogError, match="no snapshot is good: remove this member"):
            await group.start("n0")


async def test_a_snapshot_from_before_the_logs_beginning_is_not_begun_with(
    tmp_path: Path,
) -> None:
    """What follows it is gone: the state would lack those entries for ever."""
    async with running(tmp_path, 1) as group:
        await write(group, 2 * ENTRIES_PER_SEGMENT)
        await settled(group)
        directory = tmp_path / "n0" / "snapshots"
        (oldest, *_) = snapshots(tmp_path, "n0")
        kept = (directory / f"{oldest:020d}.snapshot").read_bytes()
        await shortened(group, await write(group, 4 * ENTRIES_PER_SEGMENT))
        await group.crash("n0")
        for path in directory.iterdir():
            path.unlink()
        (directory / f"{oldest:020d}.snapshot").write_bytes(kept)
        with pytest.raises(CorruptLogError, match="no snapshot is good: remove this member"):
            await group.start("n0")


async def test_a_follower_that_comes_too_late_gets_a_snapshot(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        first = await write(group, 20)
        leader = await group.leader()
        late = next(name for name in group.nodes if name != leader)
        await group.crash(late)
        written = first + await write(group, 5 * ENTRIES_PER_SEGMENT, 20)
        await shortened(group, written)
        await group.start(late)
        machine = group.machines[late]
        await until(lambda: machine.data() == written, "caught up")
        assert machine.restored_on == [threading.current_thread()], "between two applies"
        assert not set(machine.restored_on) & set(machine.prepared_on), "read on another thread"
        base = group.nodes[leader].status().first_index - 1
        assert group.nodes[late].status().first_index == base + 1
        installs = [event for event in trace_of(tmp_path, late) if event["event"] == "install"]
        assert [event["index"] for event in installs] == [base]
        # What the snapshot contains beyond the log's base is not applied, but indexed.
        assert machine.restored_index > base
        await until(
            lambda: machine.indexed >= set(range(base + 1, len(machine.entries) + 1)), "indexed"
        )
        more = await write(group, 10, len(written))
        await until(lambda: machine.data() == written + more, "goes on")
        await group.crash(late)
        await group.start(late)
        machine = group.machines[late]
        await until(lambda: machine.data() == written + more, "restarts from it")


async def test_a_state_that_cannot_be_read_stops_the_node_and_leaves_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader of another version, perhaps: an older program must find the store as it was."""
    async with running(tmp_path) as group:
        written = await write(group, 20)
        leader = await group.leader()
        late = next(name for name in group.nodes if name != leader)
        await settled(group)
        await group.crash(late)
        written += await write(group, 5 * ENTRIES_PER_SEGMENT, 20)
        await shortened(group, written)

        def refuse(self: Recorder, index: int, chunks: object) -> None:
            raise ValueError(f"no state at {index}")

        with monkeypatch.context() as newer:
            newer.setattr(Recorder, "prepare_restore", refuse)
            await group.start(late)
            node = group.nodes[late]
            error = await asyncio.wait_for(node.wait_failed(), 10)
            assert str(error).startswith("no state at")
            await group.crash(late)
        assert snapshots(tmp_path, late) == []
        await group.start(late)
        machine = group.machines[late]
        await until(lambda: machine.data() == written, "nothing was lost")


async def test_an_install_goes_on_where_it_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks again and again; no piece is sent that has been stored."""
    sent: list[int] = []
    async with running(tmp_path) as group:
        leader = await group.leader()
        late = next(name for name in group.nodes if name != leader)
        await group.crash(late)
        await shortened(group, await write(group, 5 * ENTRIES_PER_SEGMENT))
        for node in group.nodes.values():
            monkeypatch.setattr(node._installs._sender, "_chunk_size_bytes", 10_000)
        transport = group.nodes[leader]._transport
        send = transport.send

        def counting(message: PeerMessage) -> None:
            if isinstance(message, InstallSnapshot):
                sent.append(message.offset)
                if len(sent) % 5 == 0:
                    link = transport._links[message.receiver]  # type: ignore[attr-defined]
                    if link.connection is not None:
                        link.connection.close("broken by the test")
            send(message)

        monkeypatch.setattr(transport, "send", counting)
        await group.start(late)
        size = len(group.machines[leader].data())
        await until(lambda: len(group.machines[late].data()) == size, "caught up", 30)
    assert len(sent) > 10
    assert sent == sorted(sent), "never back to the beginning"
