"""Leaders and followers whose disk is full or hangs."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from chaos.sim.machine.disk import SimDisk
from raft.events import Role
from raft.log.disk import OsDisk
from raft.log.log_recovery import RecoveredLog
from raft.log.segment_log import SegmentLog
from raft.messages import NodeId
from raft.node.node import RaftNode
from raft.node.node_config import FSYNC_BY
from raft.replicated_log import LogFullError, NotLeaderError, ProposalStatus
from raft.storage import OnSynced
from tests.raft.node_bench import bench
from tests.raft.node_group import Recorder, node_config, payload, running
from tests.raft.snapshot_group import write


def fill_disk(monkeypatch: pytest.MonkeyPatch, log: object, *, full: bool) -> None:
    monkeypatch.setattr(log, "reserve", lambda size: not full)


async def test_a_leader_without_room_hands_over_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as group:
        await write(group, 5)
        leader = await group.leader()
        node = group.nodes[leader]
        fill_disk(monkeypatch, node._store.log, full=True)
        with pytest.raises(LogFullError):
            node.propose(payload(b"no room"))
        assert not node.status().writable
        await until(lambda: node.status().role is not Role.LEADER, "handed over")
        successor = await group.leader()
        assert successor != leader
        written = await write(group, 5, 5)
        # It follows without taking entries, and catches up by itself once there is room.
        last = group.nodes[successor].status().last_index
        await asyncio.sleep(0.3)
        assert node.status().last_index < last
        fill_disk(monkeypatch, node._store.log, full=False)
        await until(lambda: group.machines[leader].data()[-5:] == written, "caught up")
        assert node.status().writable


async def test_a_group_without_room_refuses_and_recovers_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as group:
        await write(group, 5)
        for node in group.nodes.values():
            fill_disk(monkeypatch, node._store.log, full=True)
        for _ in range(30):
            for node in group.nodes.values():
                with pytest.raises((LogFullError, NotLeaderError)):  # both for sure
                    node.propose(payload(b"no room"))
            await asyncio.sleep(0.02)
        for node in group.nodes.values():
            fill_disk(monkeypatch, node._store.log, full=False)
        await until(
            lambda: all(node.status().writable for node in group.nodes.values()), "room again"
        )
        await write(group, 5, 5)


@pytest.mark.parametrize("fsync_by", FSYNC_BY)
async def test_a_leader_whose_fsync_hangs_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync_by: str
) -> None:
    async with running(tmp_path, fsync_by=fsync_by) as group:
        await write(group, 5)
        leader = await group.leader()
        node = group.nodes[leader]
        log = node._store.log
        sync, begin_sync, goes_on = log.sync, log.begin_sync, threading.Event()
        hanging: list[Callable[[], None]] = []

        def hangs() -> object:
            goes_on.wait(120)  # longer than anybody waits here
            return sync()

        def hangs_in_kernel(on_done: OnSynced) -> bool:
            return begin_sync(lambda error: hanging.append(partial(on_done, error)))

        monkeypatch.setattr(log, "sync", hangs)
        monkeypatch.setattr(log, "begin_sync", hangs_in_kernel)
        # A majority has it without the leader's own fsync.
        result = await node.propose(payload(b"committed by the followers"))
        assert result.status is ProposalStatus.COMMITTED
        await until(lambda: node.status().role is not Role.LEADER, "handed over")
        assert await group.leader() != leader
        assert len(hanging) == (fsync_by == "kernel"), "the way that was asked for"
        goes_on.set()
        monkeypatch.setattr(log, "begin_sync", begin_sync)
        for report in hanging:
            report()
        await write(group, 5, 6)


@pytest.mark.parametrize("fsync_by", FSYNC_BY)
async def test_a_leader_whose_fsync_fails_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync_by: str
) -> None:
    async with running(tmp_path, fsync_by=fsync_by) as group:
        await write(group, 5)
        leader = await group.leader()
        node = group.nodes[leader]

        def fails() -> object:
            raise OSError(5, "Input/output error")

        def fails_in_kernel(descriptor: int, on_done: OnSynced) -> bool:
            asyncio.get_running_loop().call_soon(on_done, OSError(5, "Input/output error"))
            return True

        monkeypatch.setattr(node._store.log, "sync", fails)
        if fsync_by == "kernel":
            disk = node._store._disk
            assert isinstance(disk, OsDisk)
            monkeypatch.setattr(disk.fsync_queue, "submit", fails_in_kernel)
        node.propose(payload(b"x"))
        error = await node.wait_failed()
        assert isinstance(error, OSError)
        assert node.stopped
        assert await group.leader() != leader


async def test_a_follower_without_room_says_so_and_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as made:
        fill_disk(monkeypatch, made.node._store.log, full=True)
        made.append(term=5, index=1, prev_term=0)
        await made.until("send", "AppendEntriesReply")
        reply = made.transport.sent[-1]
        assert getattr(reply, "writable", None) is False
        assert made.node.status().last_index == 0


@pytest.mark.parametrize("room", [0, 1, 100, 10_000, 64 << 10, (64 << 10) + 200, 128 << 10])
async def test_a_start_whose_room_somebody_else_has_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """What was reserved behind the log's end is gone, as of a store that an older version stopped,
    and a sole voter leads at once: its first entry may find a full disk."""
    disk = SimDisk(random.Random(1))
    peers = {NodeId("n0"): f"127.0.0.1:{free_port()}"}
    config = node_config(tmp_path, "n0", peers, segment_size_bytes_max=1 << 20)
    node = RaftNode(config, Recorder(), disk=disk)
    await node.start()
    await until(lambda: node.status().ready, "it leads")
    await node.propose(payload(b"first"))
    node.fail(RuntimeError("killed"))
    await node.stop()
    disk.process_crash()
    last = max(path for path in disk.paths() if path.rpartition("/")[2].isdecimal())
    disk.spoil(last, disk.content(last).rstrip(b"\0"))
    settle = SegmentLog._settle

    def settled(log: SegmentLog, recovered: RecoveredLog) -> None:
        settle(log, recovered)
        disk.capacity_bytes = disk.used_bytes + room

    monkeypatch.setattr(SegmentLog, "_settle", settled)
    node = RaftNode(config, Recorder(), disk=disk)
    await node.start()
    failed = asyncio.create_task(node.wait_failed())
    ticks = node._shell.core._timer.deadline_ms if node._shell is not None else 0
    await until(
        lambda: (
            node.status().ready
            or (
                node.status().role is not Role.LEADER
                and node._shell is not None
                and node._shell.core._timer.deadline_ms > ticks
            )
        ),
        "it leads, or has waited for its turn",
    )
    assert not failed.done()
    assert node.status().ready == (room >= 64 << 10)
    disk.capacity_bytes = None
    await until(lambda: node.status().ready and node.status().writable, "there is room")
    assert (await node.propose(payload(b"second"))).status is ProposalStatus.COMMITTED
    failed.cancel()
    await node.stop()
