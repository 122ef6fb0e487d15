"""A start on a full disk: what is there is served, what has no room waits for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from chaos.sim.machine.disk import SimDisk
from raft.events import Role
from raft.messages import NodeId
from raft.node.node import RaftNode
from raft.replicated_log import LogFullError, Phase
from tests.raft.node_group import Recorder, node_config, payload

SEGMENT_SIZE_BYTES = 1 << 20


class Alone:
    """A group of one on a simulated disk that may be full."""

    def __init__(self, directory: Path) -> None:
        self.disk = SimDisk(random.Random(1))
        peers = {NodeId("n0"): f"127.0.0.1:{free_port()}"}
        self.config = node_config(
            directory, "n0", peers, segment_size_bytes_max=SEGMENT_SIZE_BYTES, trace=False
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[RaftNode, Recorder]]:
        """Killed at the end."""
        machine = Recorder()
        node = RaftNode(self.config, machine, disk=self.disk)
        await node.start()
        try:
            yield node, machine
        finally:
            node.fail(RuntimeError("killed"))
            await node.stop()
            self.disk.process_crash()

    async def fill(self) -> int:
        """Send until there is no room; how much was taken."""
        async with self.running() as (node, _):
            await until(lambda: node.status().ready, "leads")
            self.disk.capacity_bytes = self.disk.used_bytes + 300_000
            count = 0
            while True:
                try:
                    await node.propose(payload(b"x" * 10_000))
                except LogFullError:
                    assert not node.status().writable
                    return count
                count += 1

    def last_segment(self) -> str:
        return max(path for path in self.disk.paths() if path.rpartition("/")[2].isdecimal())

    def others_take_the_rest(self) -> None:
        self.disk.capacity_bytes = self.disk.used_bytes

    def leave_no_room(self) -> None:
        """As a store whose end was cut to its entries, and others have taken the blocks."""
        last = self.last_segment()
        self.disk.spoil(last, self.disk.content(last).rstrip(b"\0"))
        if "commitlog/next" in self.disk.paths():
            self.disk.lose("commitlog/next")
        self.others_take_the_rest()


async def test_a_start_gives_no_room_back(tmp_path: Path) -> None:
    alone = Alone(tmp_path)
    count = await alone.fill()
    alone.others_take_the_rest()
    used_bytes = alone.disk.used_bytes
    async with alone.running() as (node, machine):
        await until(lambda: node.status().ready, "leads, without a free block")
        assert len(machine.data()) == count
        assert alone.disk.used_bytes <= used_bytes + 1_000, "another checkpoint"
        alone.disk.capacity_bytes = None
        await until(lambda: node.status().writable, "hears of the room")
        await node.propose(payload(b"more"))


async def test_where_there_is_no_room_for_one_entry_nobody_leads_and_nobody_stops(
    tmp_path: Path,
) -> None:
    alone = Alone(tmp_path)
    count = await alone.fill()
    alone.leave_no_room()
    async with alone.running() as (node, machine):
        timeout_s = alone.config.raft.election_timeout_ms_max / 1000
        failed = asyncio.ensure_future(node.wait_failed())
        done, _ = await asyncio.wait([failed], timeout=5 * timeout_s)
        assert not done, "it waits"
        status = node.status()
        assert (status.phase, status.role, status.writable) == (Phase.SERVING, Role.FOLLOWER, False)
        alone.disk.capacity_bytes = None
        await until(lambda: node.status().ready, "room was made")
        assert node.status().writable
        assert len(machine.data()) == count
        failed.cancel()


async def test_a_full_disk_is_not_asked_for_room_at_every_event(
    tmp_path: Path, monkeypatch
) -> None:
    """A call of the system each, on the loop, as often as a group of which it is a part speaks."""
    alone = Alone(tmp_path)
    await alone.fill()
    alone.leave_no_room()
    async with alone.running() as (node, _):
        shell = node._shell
        assert shell is not None
        await until(lambda: not shell._room.can_begin, "it has no room")
        asked_ms: list[int] = []
        real = shell._log.reserve

        def reserve(size: int) -> bool:
            asked_ms.append(shell.now_ms())
            return real(size)

        monkeypatch.setattr(shell._log, "reserve", reserve)
        begin_ms = shell.now_ms()
        for _ in range(5_000):
            shell.on_unreachable(NodeId("n1"))
        assert len(asked_ms) <= 1 + (shell.now_ms() - begin_ms) // 100
        alone.disk.capacity_bytes = None
        freed_ms = shell.now_ms()
        while not shell._room.can_begin:
            assert shell.now_ms() < freed_ms + 1_000, "the next event after 100 ms finds the room"
            shell.on_unreachable(NodeId("n1"))
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", range(5))
async def test_a_torn_tail_on_a_full_disk_becomes_room(tmp_path: Path, seed: int) -> None:
    alone = Alone(tmp_path)
    count = await alone.fill()
    last = alone.last_segment()
    content = bytearray(alone.disk.content(last))
    end = len(content.rstrip(b"\0"))
    content[end : end + 5_000] = random.Random(seed).randbytes(5_000)
    alone.disk.spoil(last, bytes(content))
    alone.others_take_the_rest()
    async with alone.running() as (node, machine):
        await until(lambda: node.status().ready, "leads, without a free block")
        assert len(machine.data()) == count
