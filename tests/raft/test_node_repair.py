"""Damage of durable entries: told apart, never served, mended from peers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from campaigns.rig.waiting import until
from raft.log.damage import DamagedLogError
from raft.log.log_format import HEADER_SIZE
from raft.messages import FetchEntries, FetchEntriesReply, NodeId, PeerMessage
from raft.replicated_log import NotLeaderError, Phase
from raft.store.restore import RestoredState, do_without, restore_newest
from tests.raft.node_group import Group, Recorder
from tests.raft.snapshot_group import ENTRIES_PER_SEGMENT, settled, shortened, two_snapshots, write


@contextlib.asynccontextmanager
async def running(store: Path, count: int = 3, **changes: object) -> AsyncIterator[Group]:
    group = Group(store, count, **{"scrub_rate_bytes_per_s": 0, **changes})
    try:
        await group.start()
        yield group
    finally:
        await group.stop()


def segments(store: Path, name: str) -> list[Path]:
    return sorted(p for p in (store / name / "commitlog").iterdir() if p.name.isdecimal())


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x20]))


def forget_sidecars(store: Path, name: str) -> None:
    """So that a start reads every byte."""
    for path in (store / name / "commitlog").glob("*.index"):
        path.unlink()


async def damaged_group(group: Group, store: Path, *names: str) -> list[bytes]:
    """Entries written, `names` stopped, their first segments damaged at different places."""
    written = await write(group, 3 * ENTRIES_PER_SEGMENT)
    await settled(group)
    for name in names:
        await group.crash(name)
    for number, name in enumerate(names):
        flip(segments(store, name)[0], HEADER_SIZE + 5_000 + 20_000 * number)
        forget_sidecars(store, name)
    return written


async def test_a_damaged_node_is_mended_before_it_takes_part(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        written = await damaged_group(group, tmp_path, "n0")
        await group.start("n0")
        assert group.nodes["n0"].status().phase is Phase.REPAIRING
        node = group.nodes["n0"]
        await until(lambda: node.status().phase is Phase.SERVING, "mended")
        await until(lambda: group.machines["n0"].data() == written, "replayed")


async def test_the_log_is_left_alone_while_a_thread_restores_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is handed out what a peer asks for, nor mended, nor looked at by the scrub."""
    begun, go_on = threading.Event(), threading.Event()

    def slowly(*arguments: Any, **named: Any) -> RestoredState:
        begun.set()
        assert go_on.wait(10)
        return restore_newest(*arguments, **named)

    async with running(tmp_path) as group:
        written = await damaged_group(group, tmp_path, "n0")
        monkeypatch.setattr("raft.node.node.restore_newest", slowly)
        await group.start("n0")
        node = group.nodes["n0"]
        await until(begun.is_set, "mended, and being restored")
        sent: list[PeerMessage] = []
        monkeypatch.setattr(node, "_send_now", sent.append)
        monkeypatch.setattr(node._repairer, "_send", sent.append)
        asked = FetchEntries(
            sender=NodeId("n1"),
            receiver=NodeId("n0"),
            request_id=1,
            first_index=1,
            last_index=9,
        )
        node._on_message(asked)
        assert sent == []
        go_on.set()
        await until(lambda: node.status().phase is Phase.SERVING, "restored")
        node._on_message(asked)
        assert [type(message) for message in sent] == [FetchEntriesReply]
        await until(lambda: group.machines["n0"].data() == written, "replayed")


async def test_a_restore_in_vain_that_lasts_does_not_keep_peers_from_mending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers answer nobody at first, and whether a snapshot does is looked up for longer than they
    have to answer, each time: that once they are back, what they send is taken all the same."""
    skipped_ms = 0
    tries = 0

    async with running(tmp_path) as group:
        written = await damaged_group(group, tmp_path, "n0")
        for name in ("n1", "n2"):
            await group.crash(name)

        def slowly(*arguments: Any) -> bool:
            nonlocal tries
            asyncio.run_coroutine_threadsafe(look_on(), loop).result(10)
            tries += 1
            return do_without(*arguments)

        async def look_on() -> None:
            nonlocal skipped_ms
            for _ in range(10):
                skipped_ms += 1_000
                node._repairer._check_damages()

        loop = asyncio.get_running_loop()
        monkeypatch.setattr("raft.node.node.do_without", slowly)
        await group.start("n0")
        node = group.nodes["n0"]
        true_ms = node._repairer._now_ms
        monkeypatch.setattr(node._repairer, "_now_ms", lambda: true_ms() + skipped_ms)
        await until(lambda: tries, "nobody answers")
        await group.start("n1", "n2")
        await until(lambda: node.status().phase is Phase.SERVING, "mended")
        await until(lambda: group.machines["n0"].data() == written, "replayed")


async def test_two_nodes_damaged_at_different_places_mend_each_other(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        written = await damaged_group(group, tmp_path, "n0", "n1", "n2")
        flip(segments(tmp_path, "n2")[0], HEADER_SIZE + 5_000)  # n1 alone has that good
        await group.start("n0", "n1", "n2")
        for name, node in group.nodes.items():
            await until(lambda n=node: n.status().phase is Phase.SERVING, f"{name} mended")
        await group.leader()
        for machine in group.machines.values():
            await until(lambda m=machine: m.data() == written, "replayed")


async def test_where_nobody_has_a_copy_the_node_says_so_and_keeps_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as group:
        await damaged_group(group, tmp_path, "n0")
        for name in ("n1", "n2"):
            await group.crash(name)
            flip(segments(tmp_path, name)[0], HEADER_SIZE + 5_000)
            forget_sidecars(tmp_path, name)
        await group.start("n0", "n1", "n2")
        told = "no peer that answers (%s, %s) has a good copy of entries"
        for one, other in (("n0", "n1"), ("n0", "n2"), ("n1", "n2")):
            text = told % (one, other)
            await until(lambda text=text: text in caplog.text, "each says so")
        for node in group.nodes.values():
            assert node.status().phase is Phase.REPAIRING
            with pytest.raises(NotLeaderError):
                node.propose(lambda _: b"never")
            last = node.status().last_index
            position = node._store.log.position(last) + HEADER_SIZE
            assert node.read(position, 6).isdigit(), "the rest is there"


async def test_what_peers_dropped_and_a_snapshot_contains_is_done_without(tmp_path: Path) -> None:
    """The others' logs begin behind the damage by now: nobody will ever have a copy."""
    async with running(tmp_path, snapshot_interval_size_bytes=0) as group:
        written = await write(group, 3 * ENTRIES_PER_SEGMENT + 20)
        await settled(group)
        await group.nodes.pop("n0").stop()  # with a snapshot of all that it has
        flip(segments(tmp_path, "n0")[-1], 5_000)
        written += await write(group, 4 * ENTRIES_PER_SEGMENT, len(written))
        await shortened(group, written)
        await group.start("n0")
        node = group.nodes["n0"]
        assert node.status().phase is Phase.REPAIRING
        await until(lambda: node.status().phase is Phase.SERVING, "it goes on")
        await until(lambda: group.machines["n0"].data() == written, "and follows")


@pytest.mark.parametrize("sidecars", [True, False])
async def test_lost_derived_files_over_a_damage_that_nobody_mends_wait_for_retention(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sidecars: bool,
) -> None:
    """The entries that only its snapshot contains pass by up to the damage. Once retention drops
    that, the node goes on behind it; what it waits for is told ever more rarely."""
    async with running(tmp_path, snapshot_interval_size_bytes=0) as group:
        written = await write(group, 5 * ENTRIES_PER_SEGMENT)
        await two_snapshots(group, tmp_path, written)
        await group.nodes.pop("n0").stop()
        flip(segments(tmp_path, "n0")[0], 5_000)
        if not sidecars:
            forget_sidecars(tmp_path, "n0")
        await shortened(group, written)
        with monkeypatch.context() as lost:
            lost.setattr(Recorder, "needs_indexing", True)
            await group.start("n0")
            node = group.nodes["n0"]
            await until(lambda: node.status().phase is Phase.SERVING, "it takes part")
        waits = "nothing is applied until it is mended or dropped"
        await until(lambda: waits in caplog.text, "it says so")
        caplog.clear()
        await until(lambda: waits in caplog.text, "again")
        attempts: list[int] = []
        turn = node._shell.applier.turn  # type: ignore[union-attr]  # it serves
        monkeypatch.setattr(
            node._shell.applier,  # type: ignore[union-attr]  # it serves
            "turn",
            lambda commit_index, term: (attempts.append(commit_index), turn(commit_index, term)),
        )
        caplog.clear()
        await until(lambda: len(attempts) > 10, "it tries")
        assert caplog.text.count(waits) <= 1
        assert node.status().applied_index < ENTRIES_PER_SEGMENT
        assert await node.retain_from(1 << 40)
        written += await write(group, 3, len(written))
        await until(lambda: group.machines["n0"].data() == written, "it goes on")
        assert not group.machines["n0"].indexed & set(range(10, ENTRIES_PER_SEGMENT))


async def test_a_scrub_finds_damage_and_it_is_mended_online(tmp_path: Path) -> None:
    async with running(tmp_path, scrub_rate_bytes_per_s=1 << 30, scrub_interval_ms=50) as group:
        written = await write(group, 3 * ENTRIES_PER_SEGMENT)
        await settled(group)
        path = segments(tmp_path, "n1")[0]
        before = path.read_bytes()
        flip(path, 30_000)
        assert path.read_bytes() != before
        await until(lambda: path.read_bytes() == before, "found and mended")
        assert group.nodes["n1"].status().phase is Phase.SERVING
        assert group.machines["n1"].data() == written


async def test_damage_that_a_reader_finds_is_refused_then_mended(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await write(group, 30 * ENTRIES_PER_SEGMENT)  # more than memory keeps
        await settled(group)
        node = group.nodes["n1"]
        log = node._store.log
        index = next(index for index in range(1, 20) if log.entries(index, index + 1, 0)[0].payload)
        position = log.position(index) + HEADER_SIZE
        flip(segments(tmp_path, "n1")[0], position + 2)
        log._forget_read(0)  # as after a while
        with pytest.raises(DamagedLogError):
            node.read(position, 6)

        def readable() -> bool:
            try:
                return bool(node.read(position, 6))
            except DamagedLogError:
                return False

        await until(readable, "mended")


async def test_a_damaged_tail_that_never_was_committed_is_dropped(tmp_path: Path) -> None:
    """n0 wrote entries that the group never saw, and they rotted: nobody has a copy."""
    async with running(tmp_path) as group:
        written = await write(group, 20)
        leader = await group.leader()
        others = [name for name in group.nodes if name != leader]
        for name in others:
            await group.crash(name)
        lost = group.nodes[leader].propose(lambda _: b"lost" * 100)
        log = group.nodes[leader]._store.log
        index = log.last_index
        await asyncio.to_thread(log.sync)
        position = log.position(index)
        await lost
        await group.crash(leader)
        flip(segments(tmp_path, leader)[-1], position + HEADER_SIZE + 10)
        await group.start(*others)
        written += await write(group, 20, 20)
        await group.start(leader)
        node = group.nodes[leader]
        await until(lambda: node.status().phase is Phase.SERVING, "the tail is dropped")
        await until(lambda: group.machines[leader].data() == written, "it follows")
