"""A master and its slaves over TCP: what they copy, what is waited for, how logs are made alike."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from broker.ha.config import HaConfig
from broker.ha.engine import HaLog
from broker.ha.frames import PUSH, REPORT
from broker.ha.master_link import MasterLink
from campaigns.rig.ports import free_ports
from campaigns.rig.waiting import turns, until
from raft.messages import NodeId
from raft.replicated_log import NotLeaderError, Phase, ProposalStatus, StateDivergedError
from tests.broker.ha.payloads import payload_at
from tests.raft.node_group import Recorder

STATUS = ProposalStatus
FILE_SIZE = 1 << 16
NODES = [NodeId("n0"), NodeId("n1"), NodeId("n2")]


class Pair:
    """Nodes of one group in `root`; n0 is the master. Stores outlive their logs."""

    def __init__(self, root: Path, count: int = 2, **values: object) -> None:
        self.root = root
        self.values = values
        ports = free_ports(count)
        self.peers = {NODES[n]: f"127.0.0.1:{ports[n]}" for n in range(count)}
        self.logs: dict[str, HaLog] = {}
        self.machines: dict[str, Recorder] = {}

    def store(self, name: str) -> Path:
        return self.root / name

    async def start(self, name: str) -> HaLog:
        values: dict[str, object] = {
            "group": "broker-a",
            "node_id": NodeId(name),
            "peers": self.peers,
            "master": NODES[0],
            "store": self.store(name),
            "segment_size_bytes_max": FILE_SIZE,
            "listen": self.peers[NodeId(name)],
            "heartbeat_ms": 50,
            "reconnect_ms": 10,
        }
        self.machines[name] = Recorder()
        log = HaLog(HaConfig(**{**values, **self.values}), self.machines[name])  # type: ignore[arg-type]
        await log.start()
        self.logs[name] = log
        return log

    async def stop(self, name: str) -> None:
        await self.logs.pop(name).stop()

    async def alike(self, *names: str) -> None:
        """Wait until these have applied what the master has."""

        def are() -> bool:
            end = self.logs["n0"].status().applied_index
            return all(self.logs[name].status().applied_index == end for name in names)

        await until(are, "the slaves have all")
        for name in names:
            assert self.machines[name].entries == self.machines["n0"].entries


@asynccontextmanager
async def pair(root: Path, count: int = 2, **values: object) -> AsyncIterator[Pair]:
    nodes = Pair(root, count, **values)
    try:
        for name in list(nodes.peers):
            await nodes.start(name)
        yield nodes
    finally:
        for name in list(nodes.logs):
            await nodes.stop(name)


async def write(log: HaLog, count: int, size: int = 500) -> list[ProposalStatus]:
    rng = random.Random(count)

    def one() -> asyncio.Future[object]:
        body = rng.randbytes(size)
        return log.propose(lambda slot: payload_at(slot.position, [body]))  # type: ignore[return-value]

    results = [await one() for _ in range(count)]
    return [result.status for result in results]  # type: ignore[attr-defined]


async def test_slaves_apply_what_the_master_appends(tmp_path: Path) -> None:
    async with pair(tmp_path, 3) as nodes:
        assert set(await write(nodes.logs["n0"], 300)) == {STATUS.COMMITTED}
        await nodes.alike("n1", "n2")
        status = nodes.logs["n1"].status()
        assert (status.leader_id, status.ready) == ("n0", False)
        with pytest.raises(NotLeaderError):
            await write(nodes.logs["n1"], 1)
        with pytest.raises(NotLeaderError):
            await nodes.logs["n1"].read_index()
    files = [sorted((tmp_path / name).rglob("ha/commitlog/0*")) for name in nodes.peers]
    assert len(files[0]) > 2
    for theirs in files[1:]:
        assert [path.read_bytes() for path in theirs] == [path.read_bytes() for path in files[0]]


async def test_a_slave_goes_on_where_it_was(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes:
        for _ in range(3):
            await write(nodes.logs["n0"], 100)
            await nodes.alike("n1")
            await nodes.stop("n1")
            await write(nodes.logs["n0"], 100)
            await nodes.start("n1")
            await nodes.alike("n1")


async def test_sync_waits_for_the_slave(tmp_path: Path) -> None:
    async with pair(tmp_path, waits_for_slaves=True, slave_timeout_ms=20_000) as nodes:
        await until(lambda: nodes.logs["n1"].status().leader_id, "linked")
        assert set(await write(nodes.logs["n0"], 50)) == {STATUS.COMMITTED}
        assert nodes.logs["n1"].retention_bounds() is not None
        assert nodes.logs["n1"].status().last_index == 50, "it had all before the answer"
        await nodes.stop("n1")
        await until(lambda: nodes.logs["n0"]._slaves.near_count() == 0, "the slave is gone")  # type: ignore[union-attr]
        assert await write(nodes.logs["n0"], 1) == [STATUS.SLAVE_NOT_AVAILABLE]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_strangers_end_no_master(
    tmp_path: Path, run: Callable[[Coroutine[None, None, None]], None]
) -> None:
    """They reset their connections before they are accepted, or say what no slave would; what one
    hears of a peer that is gone already differs by event loop."""
    run(meet_strangers(tmp_path))


async def meet_strangers(tmp_path: Path) -> None:
    async with pair(tmp_path, waits_for_slaves=True, slave_timeout_ms=20_000) as nodes:
        await until(lambda: nodes.logs["n1"].status().leader_id, "linked")
        host, _, port = nodes.peers[NODES[0]].rpartition(":")
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", REPORT.pack(-(1 << 63)), REPORT.pack(1 << 62)):
            for _ in range(10):
                with socket.create_connection((host, int(port))) as stranger:
                    linger = struct.pack("ii", 1, 0)  # a close sends a reset
                    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    stranger.sendall(said)
            assert set(await write(nodes.logs["n0"], 10)) == {STATUS.COMMITTED}
        await nodes.alike("n1")


async def test_a_slave_that_a_stranger_stands_for_comes_again(tmp_path: Path) -> None:
    async with pair(tmp_path, waits_for_slaves=True, slave_timeout_ms=100) as nodes:
        await until(lambda: nodes.logs["n1"].status().leader_id, "linked")
        assert await write(nodes.logs["n0"], 1) == [STATUS.COMMITTED]
        host, _, port = nodes.peers[NODES[0]].rpartition(":")
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(REPORT.pack(0))
            statuses: list[ProposalStatus] = []
            async with asyncio.timeout(10):
                while statuses != [STATUS.COMMITTED]:
                    statuses = await write(nodes.logs["n0"], 1)
        await nodes.alike("n1")


async def next_bytes(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the next frame that is no heartbeat."""
    size = 0
    while not size:
        position, size = PUSH.unpack(await reader.readexactly(PUSH.size))
    return position, await reader.readexactly(size)


async def confirmed(log: HaLog) -> ProposalStatus:
    """Return what a retry of the newest message would be answered with."""
    status: asyncio.Future[ProposalStatus] = asyncio.get_running_loop().create_future()
    log.confirm(status.set_result)
    return await status


async def test_a_silent_slave_is_a_timeout(tmp_path: Path) -> None:
    values = {"waits_for_slaves": True, "slave_timeout_ms": 500}
    nodes = Pair(tmp_path, 2, **values)
    log = await nodes.start("n0")
    host, port = nodes.peers[NODES[0]].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(REPORT.pack(0))
        await until(lambda: log._slaves.near_count() == 1, "it counts as near")  # type: ignore[union-attr]
        assert await write(log, 1) == [STATUS.FLUSH_SLAVE_TIMEOUT]
        position, data = await next_bytes(reader)
        assert (position, data) == (0, log.read(0, len(data)))
        waiting = asyncio.ensure_future(write(log, 1))
        position, more = await next_bytes(reader)
        assert position == len(data)
        writer.write(REPORT.pack(position + len(more)))
        assert await waiting == [STATUS.COMMITTED]
        assert await confirmed(log) is STATUS.COMMITTED, "the slave has all that it waits for"
        writer.write(REPORT.pack(1 << 40))
        refused = await write(log, 1)
        assert refused == [STATUS.FLUSH_SLAVE_TIMEOUT], "it claims what it was not sent"
        assert await confirmed(log) is STATUS.FLUSH_SLAVE_TIMEOUT, "what is stored is not safe"
    finally:
        writer.close()
        await nodes.stop("n0")


async def test_a_slave_that_dials_again_counts_once(tmp_path: Path) -> None:
    """Its older connection looks alive until it was silent for long."""
    ports = free_ports(3)
    peers = {NODES[n]: f"127.0.0.{n + 1}:{ports[n]}" for n in range(3)}
    values = {"waits_for_slaves": True, "in_sync_replicas": 3, "slave_timeout_ms": 300}
    nodes = Pair(tmp_path, 3, **values)
    nodes.peers = peers
    log = await nodes.start("n0")
    streams = []
    try:
        for number in (2, 2, 3):
            streams.append(
                await asyncio.open_connection(
                    "127.0.0.1", ports[0], local_addr=(f"127.0.0.{number}", 0)
                )
            )
            streams[-1][1].write(REPORT.pack(0))
        await until(lambda: log._slaves.near_count() == 2, "two slaves are near")  # type: ignore[union-attr]
        first = asyncio.ensure_future(write(log, 1))
        position, data = await next_bytes(streams[1][0])
        for _, writer in streams[:2]:
            writer.write(REPORT.pack(position + len(data)))
        assert await first == [STATUS.FLUSH_SLAVE_TIMEOUT], "one slave has it, twice"
        position, data = await next_bytes(streams[2][0])
        streams[2][1].write(REPORT.pack(position + len(data)))
        await until(lambda: log._slaves.replicated_position(2), "both have it")  # type: ignore[union-attr]
    finally:
        for _, writer in streams:
            writer.close()
        await nodes.stop("n0")


async def test_a_slave_that_repeats_where_it_begins_has_nothing(tmp_path: Path) -> None:
    """It compares what it has behind that place, and may have another log."""
    nodes = Pair(tmp_path, 2, waits_for_slaves=True, slave_timeout_ms=200)
    log = await nodes.start("n0")
    await write(log, 3)
    host, port = nodes.peers[NODES[0]].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        begin = log.retention_bounds().end_position - 10
        for _ in range(2):
            writer.write(REPORT.pack(begin))
        await next_bytes(reader)
        assert log._slaves.replicated_position(1) == 0  # type: ignore[union-attr]
        writer.write(REPORT.pack(begin + 10))
        await until(lambda: log._slaves.replicated_position(1), "it has compared them")  # type: ignore[union-attr]
    finally:
        writer.close()
        await nodes.stop("n0")


async def test_without_its_master_a_slave_answers_reads(tmp_path: Path) -> None:
    async with pair(tmp_path) as nodes:
        await write(nodes.logs["n0"], 5)
        await nodes.alike("n1")
        await nodes.stop("n0")
        await until(lambda: nodes.logs["n1"].status().leader_id is None, "the master is gone")
        assert await nodes.logs["n1"].read_index() == 5
        assert nodes.logs["n1"].read(0, 8)
        with pytest.raises(NotLeaderError):
            await write(nodes.logs["n1"], 1)
        await nodes.start("n0")
        await write(nodes.logs["n0"], 5)
        await nodes.alike("n1")


async def test_a_slave_that_has_not_its_masters_log_yet_answers_no_reads(tmp_path: Path) -> None:
    """It would say that every queue ends where its own empty log does."""
    nodes = Pair(tmp_path, 2)
    await write(await nodes.start("n0"), 5)
    begin = nodes.logs["n0"].read(0, 40)
    await nodes.stop("n0")
    host, port = nodes.peers[NODES[0]].split(":")
    may_send = asyncio.Event()
    is_dialled = asyncio.Event()

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(REPORT.size)
        is_dialled.set()
        await may_send.wait()
        writer.write(PUSH.pack(0, len(begin)) + begin)
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                await reader.readexactly(REPORT.size)
        writer.close()

    server = await asyncio.start_server(attend, host, int(port))
    slave = await nodes.start("n1")
    try:
        await is_dialled.wait()
        with pytest.raises(NotLeaderError):
            await slave.read_index()
        may_send.set()
        await until(lambda: slave.status().leader_id, "its master answers")
        with pytest.raises(NotLeaderError):
            await slave.read_index()
    finally:
        server.close()
        await nodes.stop("n1")
    slave = await nodes.start("n1")
    try:
        await until(lambda: slave.status().phase is Phase.SERVING, "nobody is there")
        assert await slave.read_index() == 0
    finally:
        await nodes.stop("n1")


async def test_a_heartbeat_alone_shows_no_slave_what_its_master_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that lost its disk may stand where the slave's comparison begins."""
    nodes = Pair(tmp_path, heartbeat_ms=20_000)
    async with pair(tmp_path) as before:
        await write(before.logs["n0"], 3)
        await before.alike("n1")
        store = before.logs["n0"]._store
        assert store is not None
        begin, end = store.log.last_before().position, store.log.end.position
        last_entry = store.log.read(begin, end - begin)
    may_send = asyncio.Event()
    host, _, port = nodes.peers[NODES[0]].rpartition(":")

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert REPORT.unpack(await reader.readexactly(REPORT.size)) == (begin,)
        writer.write(PUSH.pack(begin, 0))
        await may_send.wait()
        writer.write(PUSH.pack(begin, len(last_entry)) + last_entry)
        with contextlib.suppress(EOFError, ConnectionError):
            await reader.readexactly(REPORT.size)
            await reader.read()
        writer.close()

    heartbeat_came = asyncio.Event()
    heartbeat = MasterLink._heartbeat

    async def watched(link: MasterLink) -> None:
        await heartbeat(link)
        heartbeat_came.set()

    monkeypatch.setattr(MasterLink, "_heartbeat", watched)
    server = await asyncio.start_server(attend, host, int(port))
    slave = await nodes.start("n1")
    try:
        await heartbeat_came.wait()
        await turns(5)
        assert slave.status().leader_id is None
        may_send.set()
        await until(lambda: slave.status().leader_id == "n0", "its last entry is its master's")
    finally:
        server.close()
        await nodes.stop("n1")


async def diverged(nodes: Pair, name: str) -> str:
    """Wait until the slave has cut its log; then start it anew, as the broker's process does."""
    error = await nodes.logs[name].wait_failed()
    assert isinstance(error, StateDivergedError)
    await nodes.stop(name)
    await nodes.start(name)
    return str(error)


@pytest.mark.parametrize("lost", [1, 30, 250])
@pytest.mark.parametrize("regrown", [0, 10, 400])
async def test_a_slave_is_cut_to_what_its_master_has(
    tmp_path: Path, lost: int, regrown: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The master comes back without its newest entries, and may have taken others since."""
    async with pair(tmp_path) as nodes:
        await write(nodes.logs["n0"], 100)
        await nodes.alike("n1")
        await nodes.stop("n1")
        await nodes.stop("n0")
        shutil.copytree(nodes.store("n0"), tmp_path / "before")
        await nodes.start("n0")
        await nodes.start("n1")
        await write(nodes.logs["n0"], lost, 501)
        await nodes.alike("n1")
        await nodes.stop("n1")
        await nodes.stop("n0")
        shutil.rmtree(nodes.store("n0"))
        shutil.copytree(tmp_path / "before", nodes.store("n0"))
        await nodes.start("n0")
        if regrown:
            await write(nodes.logs["n0"], regrown, 502)
        with caplog.at_level(logging.ERROR):
            await nodes.start("n1")
            said = await diverged(nodes, "n1")
        assert f"{lost} entries from 101 on are dropped" in said
        assert caplog.records, "loudly"
        await nodes.alike("n1")
        await write(nodes.logs["n0"], 10)
        await nodes.alike("n1")


@pytest.mark.parametrize("regrown", [0, 5])
async def test_an_emptied_master_does_not_empty_its_slaves(
    tmp_path: Path, regrown: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair(tmp_path) as nodes:
        await write(nodes.logs["n0"], 100)
        await nodes.alike("n1")
        before = list(nodes.machines["n1"].entries)
        await nodes.stop("n0")
        shutil.rmtree(nodes.store("n0"))
        await nodes.start("n0")
        await write(nodes.logs["n0"], regrown)
        await until(lambda: "nothing in common" in caplog.text, "it says so")
        assert nodes.machines["n1"].entries == before
        assert nodes.logs["n1"].status().last_index == 100


async def test_a_slave_of_a_shortened_log_needs_a_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = Pair(tmp_path, snapshot_interval_size_bytes=FILE_SIZE)
    log = await nodes.start("n0")
    while not log.status().begin_position:
        await write(log, 50, 2_000)
        await log.retain_from(log.retention_bounds().end_position)
    slave = await nodes.start("n1")
    await until(lambda: "copy the master's store" in caplog.text, "it says so")
    assert slave.status().last_index == 0
    await nodes.stop("n1")
    await nodes.stop("n0")
    shutil.rmtree(nodes.store("n1"))
    shutil.copytree(nodes.store("n0") / "ha", nodes.store("n1") / "ha")
    await nodes.start("n0")
    await nodes.start("n1")
    await write(nodes.logs["n0"], 50)
    await nodes.alike("n1")
    await nodes.stop("n1")
    await nodes.stop("n0")


async def grow_beyond(log: HaLog, position: int) -> None:
    """Write until retention has taken the log up to `position`."""
    while log.status().begin_position < position:
        await write(log, 50, 2_000)
        await log.retain_from(position)
    assert log.status().begin_position == position


async def end_file(nodes: Pair, name: str = "n1") -> int:
    """End the master's file; return where the slave's log ends when it has followed."""
    store, slaves = nodes.logs["n0"]._store, nodes.logs["n0"]._slaves
    assert store is not None
    assert slaves is not None
    store.log.roll()
    slaves.appended()
    end = store.log.end.position
    follower = nodes.logs[name]
    await until(lambda: follower.retention_bounds().end_position == end, "the slave has the file")
    return end


async def test_a_slave_goes_on_where_its_masters_log_begins(tmp_path: Path) -> None:
    """Its last entry, by which it compares, is gone there."""
    async with pair(tmp_path, snapshot_interval_size_bytes=FILE_SIZE) as nodes:
        await write(nodes.logs["n0"], 30)
        end = await end_file(nodes)
        await nodes.stop("n1")
        await grow_beyond(nodes.logs["n0"], end)
        await nodes.start("n1")
        await nodes.alike("n1")


async def test_a_slave_follows_no_strange_log_that_begins_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither cut nor overwritten: the chain in the first entry is not its own."""
    ends = []
    for root, counts in (("one", [30]), ("other", [10, 10, 10])):
        async with pair(tmp_path / root, snapshot_interval_size_bytes=FILE_SIZE) as nodes:
            for count in counts:
                await write(nodes.logs["n0"], count)
            ends.append(await end_file(nodes))
            await nodes.stop("n1")
            await grow_beyond(nodes.logs["n0"], ends[-1])
    assert ends[0] == ends[1]
    shutil.rmtree(tmp_path / "one" / "n0")
    shutil.move(tmp_path / "other" / "n0", tmp_path / "one" / "n0")
    async with pair(tmp_path / "one", snapshot_interval_size_bytes=FILE_SIZE) as nodes:
        await until(
            lambda: caplog.text.count("nothing in common") > 1, "it says so, again and again"
        )
        bounds = nodes.logs["n1"].retention_bounds()
        assert (bounds.begin_position, bounds.end_position) == (0, ends[0])
        assert nodes.logs["n1"].status().last_index == 30


async def test_any_life_of_a_pair_ends_alike(tmp_path: Path) -> None:
    """Writes, stops and cut links at random; what a slave has is always the master's beginning."""
    rng = random.Random(7)
    async with pair(tmp_path) as nodes:
        for _ in range(25):
            draw = rng.random()
            if draw < 0.6:
                if "n0" in nodes.logs:
                    await write(nodes.logs["n0"], rng.randrange(1, 20), rng.randrange(1, 3_000))
            else:
                name = rng.choice(["n0", "n1"])
                if name in nodes.logs:
                    await nodes.stop(name)
                else:
                    await nodes.start(name)
            theirs = nodes.machines["n1"].entries
            assert theirs == nodes.machines["n0"].entries[: len(theirs)]
        for name in ("n0", "n1"):
            if name not in nodes.logs:
                await nodes.start(name)
        await nodes.alike("n1")


async def test_a_slave_without_a_master_says_so_and_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = Pair(tmp_path)
    log = await nodes.start("n1")
    with contextlib.suppress(TimeoutError):
        await until(lambda: "is down" in caplog.text, "it says so")
    assert log.status().leader_id is None
    await nodes.start("n0")
    await write(nodes.logs["n0"], 3)
    await nodes.alike("n1")
    await nodes.stop("n1")
    await nodes.stop("n0")
