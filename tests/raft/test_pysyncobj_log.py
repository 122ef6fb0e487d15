"""The replicated log on PySyncObj: the promises of the seam, over three real nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgpack
import pytest

from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from raft.log.disk import OsDisk
from raft.log.log_format import HEADER_SIZE
from raft.log.segment_log import SegmentLog
from raft.messages import EntryKind, NodeId
from raft.pysyncobj.chained_entry import EMPTY_LOG, LogEnd, entry_for, fit
from raft.pysyncobj.config import PySyncObjConfig
from raft.pysyncobj.log import PySyncObjLog
from raft.replicated_log import NotLeaderError, ProposalStatus, Slot
from raft.store.checkpoint import WrongStoreError
from tests.raft.node_group import Recorder, payload


class Group:
    """n0..n2 on PySyncObj; `start` and `crash` by name."""

    def __init__(self, store: Path, count: int = 3, **changes: object) -> None:
        self.store = store
        self.peers = {NodeId(f"n{i}"): f"127.0.0.1:{free_port()}" for i in range(count)}
        self.changes = changes
        self.logs: dict[str, PySyncObjLog] = {}
        self.machines: dict[str, Recorder] = {}

    def config(self, name: str) -> PySyncObjConfig:
        return PySyncObjConfig(
            group="broker-a",
            node_id=NodeId(name),
            peers=self.peers,
            listen=self.peers[NodeId(name)],
            store=self.store / name,
            trace=True,
            **self.changes,  # type: ignore[arg-type]  # test's free choice
        )

    async def start(self, *names: str) -> None:
        for name in names or tuple(self.peers):
            machine = Recorder()
            log = PySyncObjLog(self.config(name), machine)
            await log.start()
            self.logs[name], self.machines[name] = log, machine

    async def crash(self, name: str) -> None:
        """No hand-over, no checkpoint; the journal is as its memory map was."""
        log = self.logs.pop(name)
        del self.machines[name]
        log.fail(RuntimeError("crashed by the test"))
        await log.stop()

    async def leader(self) -> str:
        await until(lambda: self._leader() is not None, "a ready leader", seconds=20)
        name = self._leader()
        assert name is not None
        return name

    def _leader(self) -> str | None:
        ready = [name for name, log in self.logs.items() if log.status().ready]
        return max(ready, key=lambda name: self.logs[name].status().term, default=None)


@contextlib.asynccontextmanager
async def running(store: Path, count: int = 3, **changes: object) -> AsyncIterator[Group]:
    group = Group(store, count, **changes)
    try:
        await group.start()
        yield group
    finally:
        for log in group.logs.values():
            await log.stop()


def trace_of(store: Path, name: str) -> list[dict[str, object]]:
    events: list[dict[str, object]] = []
    for path in sorted((store / name / "trace").iterdir()):
        with path.open("rb") as file:
            events += list(msgpack.Unpacker(file))
    return events


# --- compare-and-append ----------------------------------------------------------------------


def test_an_entry_fits_only_the_log_it_was_made_for() -> None:
    one, behind_one = entry_for(EMPTY_LOG, term=1, kind=EntryKind.NOOP, payload=b"")
    two, behind_two = entry_for(behind_one, term=1, kind=EntryKind.DATA, payload=b"two")
    fitting = fit(EMPTY_LOG, one)
    assert fitting is not None
    assert fitting[1] == behind_one
    assert fit(EMPTY_LOG, two) is None, "a hole before it"
    assert fit(behind_two, two) is None, "there already"
    entry, end = fit(behind_one, two) or pytest.fail("fits")
    assert (entry.index, entry.payload, end) == (2, b"two", behind_two)
    # As long as `one`, and yet another log.
    other, behind_other = entry_for(EMPTY_LOG, term=2, kind=EntryKind.NOOP, payload=b"")
    assert behind_other.position == behind_one.position
    assert fit(behind_other, two) is None
    assert fit(EMPTY_LOG, other) is not None


@pytest.mark.parametrize("data", [b"", b"READ" + bytes(16), bytes(100)])
def test_what_is_no_entry_does_not_fit(data: bytes) -> None:
    assert fit(EMPTY_LOG, data) is None


def test_an_entry_with_bytes_behind_it_or_an_older_term_does_not_fit() -> None:
    data, _ = entry_for(EMPTY_LOG, term=1, kind=EntryKind.DATA, payload=b"x")
    assert fit(EMPTY_LOG, data + b"x") is None
    later = LogEnd(index=0, term=2, position=0, chain=0)
    assert fit(later, data) is None


# --- three nodes -----------------------------------------------------------------------------


async def test_a_proposal_is_applied_everywhere_in_its_slot(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        slots: list[Slot] = []

        def fill(slot: Slot) -> bytes:
            slots.append(slot)
            return b"payload %d" % slot.index

        results = await asyncio.gather(*[group.logs[leader].propose(fill) for _ in range(50)])
        assert {result.status for result in results} == {ProposalStatus.COMMITTED}
        assert [result.index for result in results] == [slot.index for slot in slots]
        assert len(group.machines[leader].data()) == 50, "applied before the future resolves"
        for name, machine in group.machines.items():
            await until(lambda m=machine: len(m.data()) == 50, f"{name} applies")
            applied = [e for e in machine.entries if e.kind is EntryKind.DATA]
            assert [entry.position for entry in applied] == [slot.position for slot in slots]
            for entry in applied:
                stored = group.logs[name].read(entry.position, len(entry.payload))
                assert stored == entry.payload == b"payload %d" % entry.index
        assert await group.logs[leader].read_index() >= slots[-1].index
        follower = next(name for name in group.logs if name != leader)
        await until(lambda: group.logs[follower].status().leader_id == leader, "known")
        with pytest.raises(NotLeaderError, match=f"leader is {leader}"):
            group.logs[follower].propose(payload(b""))
        with pytest.raises(NotLeaderError, match=f"leader is {leader}"):
            await group.logs[follower].read_index()
    end = slots[-1].position + len(b"payload %d" % slots[-1].index)
    segments = {
        (tmp_path / name / "commitlog" / f"{0:020d}").read_bytes()[:end] for name in group.peers
    }
    assert len(segments) == 1
    for name in group.peers:
        checkpoint = json.loads((tmp_path / name / "checkpoint").read_text())
        assert checkpoint["clean"] is True
        assert checkpoint["commit_index"] >= slots[-1].index
        told = {event["event"] for event in trace_of(tmp_path, name)}
        assert {"start", "append", "apply"} <= told


async def test_a_crashed_leader_is_replaced_and_the_log_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        expected: list[bytes] = []
        for round_number in range(3):
            leader = await group.leader()
            for number in range(10):
                data = b"%d-%d" % (round_number, number)
                result = await group.logs[leader].propose(payload(data))
                assert result.status is ProposalStatus.COMMITTED
                expected.append(data)
            await group.crash(leader)
            await group.leader()
            await group.start(leader)
        for machine in group.machines.values():
            await until(lambda m=machine: m.data() == expected, "all applied", seconds=20)


async def test_a_whole_group_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path, flush=False) as group:
        leader = await group.leader()
        for number in range(20):
            await group.logs[leader].propose(payload(b"%d" % number))
        for name in tuple(group.logs):
            await group.crash(name)
        await group.start()
        leader = await group.leader()
        assert await group.logs[leader].read_index() >= 21
        assert group.machines[leader].data() == [b"%d" % number for number in range(20)]


async def test_leadership_goes_where_it_is_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        log = group.logs[leader]
        await log.propose(payload(b"x"))
        target = next(name for name in group.peers if name != leader)
        with pytest.raises(ValueError, match="no other voter"):
            await log.transfer_leadership(NodeId(leader))
        await log.transfer_leadership(target)
        assert await group.leader() == target
        with pytest.raises(NotLeaderError):
            await log.transfer_leadership(target)


async def test_what_another_leader_overtook_is_refused_for_sure(tmp_path: Path) -> None:
    """A command that is behind another one in the group's log is void on every node."""
    async with running(tmp_path) as group:
        leader = await group.leader()
        log = group.logs[leader]
        await log.propose(payload(b"first"))
        # Somebody else's command, made for the same place, as a deposed leader's would be.
        data, _ = entry_for(log._end, term=log.status().term, kind=EntryKind.DATA, payload=b"its")
        log._engine.submit(data, -1)
        lost = [log.propose(payload(b"mine")), log.propose(payload(b"and mine"))]
        assert {result.status for result in await asyncio.gather(*lost)} == {
            ProposalStatus.TRUNCATED
        }
        await until(lambda: log.status().ready, "the leader finds its place again")
        await log.propose(payload(b"last"))
        for machine in group.machines.values():
            await until(lambda m=machine: m.data() == [b"first", b"its", b"last"], "alike")


async def test_an_open_proposal_ends_unknown_where_leadership_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        leader = await group.leader()
        log = group.logs[leader]
        for name in [name for name in group.logs if name != leader]:
            await group.crash(name)
        future = log.propose(payload(b"nobody hears it"))
        async with asyncio.timeout(10):
            assert (await future).status is ProposalStatus.LOST_LEADERSHIP
        assert not log.status().ready


async def test_a_log_that_is_told_otherwise_after_a_restart_is_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, count=1, segment_size_bytes_max=1 << 16) as group:
        leader = await group.leader()
        await group.logs[leader].propose(payload(b"kept"))
        await group.crash(leader)
        stored = SegmentLog(OsDisk(tmp_path / leader), "commitlog", segment_size_bytes_max=1 << 16)
        end = LogEnd(
            index=stored.last_index,
            term=stored.last_term,
            position=stored.end_position,
            chain=stored.chain(stored.last_index),
        )
        data, behind = entry_for(end, term=end.term, kind=EntryKind.DATA, payload=b"only here")
        fitting = fit(end, data)
        assert fitting is not None
        stored.append([fitting[0]])
        stored.sync()
        stored.close()
        await group.start()
        await group.leader()
        assert group.machines[leader].data() == [b"kept"]
        assert "tells another log than before" in caplog.text
        assert group.logs[leader].status().last_index == behind.index, "its no-op in that place"


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0:1000", "10.0.0.1:1000", "broker.example:1000"])
def test_only_loopback_is_taken(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="not a loopback address"):
        PySyncObjConfig(
            group="g",
            node_id=NodeId("n0"),
            peers={NodeId("n0"): "127.0.0.1:1000"},
            listen=address,
            store=tmp_path,
        )


async def test_a_store_of_the_other_engine_is_refused(tmp_path: Path) -> None:
    group = Group(tmp_path, count=1)
    (tmp_path / "n0").mkdir()
    (tmp_path / "n0" / "hard_state").write_bytes(b"x")
    with pytest.raises(WrongStoreError, match="engine raft"):
        await group.start()


async def test_a_port_in_use_is_an_os_error(tmp_path: Path) -> None:
    group = Group(tmp_path, count=1)
    host, _, port = group.peers[NodeId("n0")].partition(":")
    server = await asyncio.start_server(lambda *_: None, host, int(port))
    async with server:
        with pytest.raises(OSError, match="can't be listened on"):
            await group.start()


async def test_a_full_journal_takes_no_more(tmp_path: Path) -> None:
    async with running(tmp_path, count=1, journal_size_bytes_max=HEADER_SIZE + 100) as group:
        leader = await group.leader()
        log = group.logs[leader]
        await log.propose(payload(bytes(100)))
        with pytest.raises(ValueError, match="never compacted"):
            log.propose(payload(b"x"))
