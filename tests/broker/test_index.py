"""The index by key: its files' layout, what a kill and a damaged file leave, and QUERY_MESSAGE."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.entry.applied_entries import AppliedEntries
from broker.entry.payload import DeleteTopicCommand, decode_payload
from broker.index import indexer, message_index
from broker.index.index_file import (
    HEADER_SIZE,
    IndexFile,
    IndexFileMark,
    IndexShape,
    find_positions,
)
from broker.index.indexer import Indexer
from broker.index.key_hashes import IndexedKeys, hash_keys, key_hash, topic_hash
from broker.index.message_index import IndexProgress, MessageIndex
from broker.index.query_message import QueryMessageProcessor
from broker.leader.proposer import Proposal
from broker.send.send import SendProcessor
from campaigns.rig.waiting import turns, until
from raft.log.log_format import HEADER_SIZE as HEADER_SIZE_OF_ENTRY
from raft.messages import EntryKind
from raft.replicated_log import CommittedEntry
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import BatchItem, decode_records, encode_batch_body, java_string_hash
from tests.broker.rig import START_MS, Rig, send_fields

SHAPE = IndexShape(slot_count=7, unit_count=12)
SEND = RequestCode.SEND_MESSAGE_V2
LONG_AGO, FAR_AHEAD = 0, (1 << 63) - 1


class Indexed:
    """A rig and its indexer over files of a small shape."""

    def __init__(self, directory: Path, shape: IndexShape = SHAPE) -> None:
        self.rig = Rig(directory / "store")
        self.directory = directory
        self.shape = shape
        self.indexer = self.another()
        self.indexer.index.open()
        self.indexer._is_open = True

    def another(self) -> Indexer:
        return Indexer(
            self.rig.log,
            self.directory / "index",
            self.shape,
            self.rig.tasks,
            applied_position=lambda: self.rig.machine.applied_position,
            applied=self.rig.applied,
        )

    async def restart(self, *, killed: bool) -> None:
        """The next life over the same files."""
        if killed:
            self.indexer.index.abandon()
        else:
            self.indexer.stop()
        self.indexer = self.another()
        await self.indexer.start()

    async def housekeep(self) -> None:
        self.indexer._housekeep(1e9)
        await until(lambda: not (self.indexer._saving or self.indexer._sealing))

    async def send(self, body: bytes = b"x", **fields: str) -> int:
        """Its position."""
        handle = self.rig.make(SendProcessor).handle
        answer = await self.rig.ask(handle, SEND, send_fields(**fields), body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return int(answer.ext_fields["msgId"][16:], 16)

    async def query(self, key: str, **more: str) -> RemotingCommand:
        fields = {"topic": "T", "key": key, "maxNum": "32"}
        fields |= {"beginTimestamp": str(LONG_AGO), "endTimestamp": str(FAR_AHEAD)} | more
        processor = self.rig.make(QueryMessageProcessor, self.rig.tasks, self.indexer)
        return await self.rig.ask(processor.handle, RequestCode.QUERY_MESSAGE, fields)

    async def bodies(self, key: str, **more: str) -> list[bytes]:
        answer = await self.query(key, **more)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return [record.body for record in decode_records(answer.body)]


@pytest.fixture
async def indexed(tmp_path: Path) -> AsyncIterator[Indexed]:
    indexed = Indexed(tmp_path)
    yield indexed
    await indexed.rig.tasks.stop()
    indexed.indexer.index.abandon()
    indexed.rig.queues.close()


# One file ----------------------------------------------------------------------------------------


@given(st.text(max_size=300), st.text(max_size=300))
def test_hashes_are_javas(topic, key):
    signed = java_string_hash(f"{topic}#{key}")
    wanted = 0 if signed == -(1 << 31) else abs(signed)
    assert key_hash(topic_hash(topic), key) == wanted


@given(st.lists(st.tuples(st.text(max_size=9), st.text(max_size=300))))
def test_many_hashes_are_those_of_each(pairs):
    topics = np.array([topic_hash(topic) for topic, _ in pairs], np.uint32)
    for keys in ([key for _, key in pairs], [ascii(key) for _, key in pairs]):
        hashes = hash_keys(topics, keys).tolist()
        assert hashes == [
            key_hash(int(topic), key) for topic, key in zip(topics, keys, strict=True)
        ]


def test_the_hash_that_has_no_positive_value_is_nothing():
    assert java_string_hash("polygenelubricants") == -(1 << 31)
    assert key_hash(0, "polygenelubricants") == 0
    assert hash_keys(np.zeros(1, np.uint32), ["polygenelubricants"]).tolist() == [0]


def test_the_layout_is_rocketmqs(tmp_path):
    file = IndexFile(tmp_path, SHAPE, IndexFileMark(name="20260101", from_position=0))
    file.append(IndexedKeys.of([(3, 1_000, 5_000), (10, 2_000, 6_999)]))
    file.append(IndexedKeys.of([(3, 3_000, 9_000)]))
    file.flush()
    file.close()
    data = (tmp_path / "20260101").read_bytes()
    assert len(data) == HEADER_SIZE + 4 * 7 + 20 * 12
    assert struct.unpack_from(">qqqqii", data) == (5_000, 9_000, 1_000, 3_000, 1, 4)
    assert struct.unpack_from(">7i", data, 40) == (0, 0, 0, 3, 0, 0, 0)
    units = [struct.unpack_from(">iqii", data, 68 + 20 * number) for number in range(5)]
    assert units == [
        (0, 0, 0, 0),
        (3, 1_000, 0, 0),
        (10, 2_000, 1, 1),
        (3, 3_000, 4, 2),
        (0, 0, 0, 0),
    ]


def found_in(file: IndexFile, directory: Path, shape: IndexShape, hashed: int) -> list[int]:
    return find_positions(
        directory / file.mark.name,
        shape,
        file.mark,
        hashed,
        head=file.head(hashed),
        begin_ms=LONG_AGO,
        end_ms=FAR_AHEAD,
        count_max=10_000,
    )


def found(directory: Path, file: IndexFile, hashed: int, **more: int) -> list[int]:
    times = {"begin_ms": LONG_AGO, "end_ms": FAR_AHEAD, "count_max": 64} | more
    head = file.head(hashed)
    return find_positions(directory / file.mark.name, SHAPE, file.mark, hashed, head=head, **times)


def test_units_of_a_write_that_never_counted_do_not_break_chains(tmp_path):
    file = IndexFile(tmp_path, SHAPE, IndexFileMark(name="a", from_position=0))
    file.append(IndexedKeys.of([(3, 1_000, 0)]))
    before = file.mark
    lost = IndexedKeys.of([(3, 2_000, 0), (10, 2_500, 0), (3, 3_000, 0)])
    file.append(lost)
    file.mark = before  # a kill forgets what the checkpoint does not have
    assert found(tmp_path, file, 3) == [1_000]
    file.append(lost[:2])
    file.append(lost[2:])
    assert found(tmp_path, file, 3) == [3_000, 2_000, 1_000]
    assert found(tmp_path, file, 10) == [2_500]
    file.close()


def save(index: MessageIndex) -> None:
    unsaved = index.unsaved()
    if unsaved is not None:
        state, files = unsaved
        for file in files:
            file.flush()
        index.save(state)


# Many files --------------------------------------------------------------------------------------

KEYS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=60)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.one_of(KEYS, st.sampled_from(["kill", "stop", "boot", "save"])), min_size=1, max_size=12
    ),
    st.data(),
)
def test_any_life_of_an_index_finds_what_a_list_finds(tmp_path_factory, steps, data):
    directory = tmp_path_factory.mktemp("index") / "index"
    model: list[tuple[int, int, int]] = []  # keys in order; a key's place is its log position
    boot = 0

    def go_on() -> None:
        """Add again what the index does not have: what a log is for."""
        start = index.progress.next_position
        if model[start:]:
            progress = IndexProgress(next_position=len(model), last_position=0)
            index.add(IndexedKeys.of(model[start:]), progress)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # no power fails here: the boot id says it does
        index = MessageIndex(directory, SHAPE)
        index.open()
        for step in steps:
            patch.setattr(message_index, "_boot_id", lambda boot=boot: str(boot))
            if isinstance(step, list):
                model += [
                    (hashed, len(model) + at, 1_000 * (len(model) + at + gap))
                    for at, (hashed, gap) in enumerate(step)
                ]
                model.sort(key=lambda key: key[1:])
                go_on()
            elif step == "save":
                save(index)
            else:
                index.close() if step == "stop" else index.abandon()
                boot += step == "boot"
                patch.setattr(message_index, "_boot_id", lambda boot=boot: str(boot))
                index = MessageIndex(directory, SHAPE)
                index.open()
                go_on()
    hashed = data.draw(st.integers(0, 20))
    positions = index.look_up(hashed).positions(
        begin_ms=LONG_AGO, end_ms=FAR_AHEAD, count_max=10_000
    )
    index.abandon()
    assert list(dict.fromkeys(positions)) == [
        position for key, position, _ in reversed(model) if key == hashed
    ]


def filled(directory: Path) -> MessageIndex:
    index = MessageIndex(directory, SHAPE)
    index.open()
    keys = IndexedKeys.of([(number, number, 1_000 * number) for number in range(30)])
    for at in range(0, 30, 5):
        index.add(keys[at : at + 5], IndexProgress(next_position=at + 5, last_position=at))
    return index


def test_a_damaged_file_and_those_behind_it_are_built_again(tmp_path):
    index = filled(tmp_path / "index")
    index.close()
    names = sorted(path.name for path in (tmp_path / "index").iterdir())
    assert len(names) == 3
    with (tmp_path / "index" / names[1]).open("r+b") as file:
        file.seek(SHAPE.units_at + 20 * 3)
        file.write(b"\xff")
    index = MessageIndex(tmp_path / "index", SHAPE)
    index.open()
    assert [path.name for path in (tmp_path / "index").iterdir()] == names[:1]
    assert index.progress == IndexProgress(next_position=10)
    assert index.look_up(4).positions(begin_ms=0, end_ms=FAR_AHEAD, count_max=9) == [4]
    index.abandon()


def test_after_a_failure_of_the_machine_only_sealed_files_count(tmp_path, monkeypatch):
    index = filled(tmp_path / "index")
    first = index.unsealed()[0]
    first.flush()
    assert first.sync()
    first.seal()
    save(index)
    index.abandon()
    monkeypatch.setattr(message_index, "_boot_id", lambda: "another")
    index = MessageIndex(tmp_path / "index", SHAPE)
    index.open()
    assert len(list((tmp_path / "index").iterdir())) == 1
    assert index.progress.next_position == 10
    index.abandon()


def test_files_that_tell_of_nothing_any_more_go(tmp_path):
    index = filled(tmp_path / "index")
    index.trim(11)
    assert len(list((tmp_path / "index").iterdir())) == 2
    index.trim(10_000)
    assert len(list((tmp_path / "index").iterdir())) == 1, "the last one stays"
    assert index.look_up(29).positions(begin_ms=0, end_ms=FAR_AHEAD, count_max=9) == [29]
    index.abandon()


def test_another_shape_begins_anew(tmp_path):
    filled(tmp_path / "index").close()
    index = MessageIndex(tmp_path / "index", IndexShape(slot_count=5, unit_count=12))
    index.open()
    assert index.progress == IndexProgress()
    assert list((tmp_path / "index").iterdir()) == []
    index.abandon()


# QUERY_MESSAGE -----------------------------------------------------------------------------------


async def test_messages_are_found_by_their_keys(indexed):
    await indexed.send(b"one", key="U1", KEYS="order-1 paid")
    await indexed.send(b"two", key="U2", KEYS="order-2 paid")
    await indexed.send(b"three", key="U3")
    assert await indexed.bodies("paid") == [b"one", b"two"]
    assert await indexed.bodies("order-2") == [b"two"]
    assert await indexed.bodies("U3", _UNIQUE_KEY_QUERY="true", maxNum="1") == [b"three"]
    assert await indexed.bodies("U1") == [b"one"]
    assert await indexed.bodies("paid", maxNum="1") == [b"two"], "the newest"
    assert await indexed.bodies("paid", topic="Other") == []
    none = await indexed.query("order-3")
    assert none.code == ResponseCode.QUERY_NOT_FOUND
    assert none.ext_fields["indexLastUpdateTimestamp"] == str(START_MS)
    assert (await indexed.query("x", maxNum="many")).code == ResponseCode.SYSTEM_ERROR


async def test_keys_of_batches_and_of_delayed_messages(indexed):
    items = [
        BatchItem(b"a", b"UNIQ_KEY\x01B1\x02KEYS\x01k\x02"),
        BatchItem(b"b", b"UNIQ_KEY\x01B2\x02"),
    ]
    handle = indexed.rig.make(SendProcessor).handle
    batch = send_fields(key=None) | {"m": "true"}
    code = RequestCode.SEND_BATCH_MESSAGE
    answer = await indexed.rig.ask(handle, code, batch, encode_batch_body(items))
    assert answer.code == ResponseCode.SUCCESS
    await indexed.send(b"later", key="D1", DELAY="1")
    assert await indexed.bodies("B2") == [b"b"]
    assert await indexed.bodies("k") == [b"a"]
    assert await indexed.bodies("D1") == []
    assert await indexed.bodies("D1", topic="SCHEDULE_TOPIC_XXXX") == [b"later"]


async def test_the_time_range_is_exact(indexed):
    for at_ms, body in ((0, b"a"), (1_500, b"b"), (1_999, b"c"), (4_000, b"d")):
        indexed.rig.now_ms = START_MS + at_ms
        await indexed.send(body, key=f"K{at_ms}", KEYS="k")
    begin, end = str(START_MS + 1_500), str(START_MS + 1_998)
    assert await indexed.bodies("k", beginTimestamp=begin, endTimestamp=end) == [b"b"]
    assert await indexed.bodies("k", beginTimestamp=begin) == [b"b", b"c", b"d"]
    assert await indexed.bodies("k", endTimestamp=str(START_MS)) == [b"a"]
    assert await indexed.bodies("k", beginTimestamp="9", endTimestamp="8") == []


async def test_at_most_sixty_four_the_newest(tmp_path):
    indexed = Indexed(tmp_path, IndexShape(slot_count=3, unit_count=50))
    for number in range(100):
        await indexed.send(b"%d" % number, key=f"K{number}", KEYS="k")
    wanted = [b"%d" % number for number in range(36, 100)]
    assert await indexed.bodies("k", maxNum="9999") == wanted
    unique = await indexed.bodies("k", maxNum="9999", _UNIQUE_KEY_QUERY="true")
    assert unique == wanted[-32:]
    await indexed.rig.tasks.stop()
    indexed.indexer.index.abandon()
    indexed.rig.queues.close()


async def test_what_was_deleted_with_its_topic_is_found_no_more(indexed):
    await indexed.send(b"old", key="U1", KEYS="order")
    command = DeleteTopicCommand("T")
    ended = asyncio.Event()
    indexed.rig.context.proposer.submit(
        Proposal(commands=[command], on_done=lambda _: ended.set(), ends_batch=True)
    )
    await ended.wait()
    assert await indexed.bodies("order") == []
    await indexed.send(b"new", key="U2", KEYS="order")
    assert await indexed.bodies("order") == [b"new"]


async def test_a_collision_is_told_apart(indexed):
    """ "Aa" and "BB" have one hash, and so has what begins and goes on alike."""
    await indexed.send(b"one", key="U1", KEYS="Aa")
    await indexed.send(b"two", key="U2", KEYS="BB")
    assert await indexed.bodies("Aa") == [b"one"]
    assert await indexed.bodies("BB") == [b"two"]


@pytest.mark.parametrize("killed", [True, False])
async def test_a_restart_goes_on_where_the_index_was(indexed, killed):
    for number in range(20):
        await indexed.send(b"%d" % number, key=f"K{number}", KEYS="k")
    assert len(await indexed.bodies("k")) == 20
    save(indexed.indexer.index)
    for number in range(20, 30):
        await indexed.send(b"%d" % number, key=f"K{number}", KEYS="k")
    assert len(await indexed.bodies("k")) == 30, "written, and not in the checkpoint"
    await indexed.restart(killed=killed)
    behind = indexed.indexer.behind
    assert bool(behind) == killed
    assert await indexed.bodies("k") == [b"%d" % number for number in range(30)]


async def test_a_checkpoint_holds_nothing_that_came_while_it_was_flushed(indexed, monkeypatch):
    flush, flushed, may_end = IndexFile.flush, threading.Event(), threading.Event()

    def slow(file: IndexFile) -> None:
        flush(file)
        flushed.set()
        assert may_end.wait(30)

    monkeypatch.setattr(IndexFile, "flush", slow)
    for number in range(5):
        await indexed.send(b"%d" % number, key=f"K{number}", KEYS="k")
    assert len(await indexed.bodies("k")) == 5
    indexed.indexer._housekeep(1e9)
    await until(flushed.is_set)
    for number in range(5, 10):
        await indexed.send(b"%d" % number, key=f"K{number}", KEYS="k")
    assert len(await indexed.bodies("k")) == 10
    may_end.set()
    await until(lambda: not indexed.indexer._saving)
    monkeypatch.undo()
    await indexed.restart(killed=True)
    assert await indexed.bodies("k") == [b"%d" % number for number in range(10)]


async def test_deleted_files_are_built_again(indexed):
    for number in range(20):
        await indexed.send(b"%d" % number, key=f"K{number}", KEYS="k")
    assert len(await indexed.bodies("k")) == 20
    indexed.indexer.stop()
    for path in (indexed.directory / "index").iterdir():
        path.unlink()
    indexed.indexer = indexed.another()
    await indexed.indexer.start()
    assert await indexed.bodies("k") == [b"%d" % number for number in range(20)]


async def test_the_index_of_another_log_is_not_believed(indexed, tmp_path):
    for number in range(9):
        await indexed.send(b"old", key=f"K{number}", KEYS="k")
    assert len(await indexed.bodies("k")) == 9
    indexed.indexer.stop()
    other = Indexed(tmp_path / "other")
    other.indexer.index.abandon()
    other.directory = indexed.directory
    other.indexer = other.another()
    await other.indexer.start()
    await other.send(b"new", key="K1", KEYS="k")
    assert await other.bodies("k") == [b"new"]
    other.indexer.index.abandon()
    other.rig.queues.close()


async def test_what_retention_took_is_found_no_more(indexed):
    positions = [await indexed.send(b"%d" % n, key=f"K{n}", KEYS="k") for n in range(20)]
    assert len(await indexed.bodies("k")) == 20
    await indexed.rig.log.retain_from(positions[12])
    await indexed.housekeep()
    assert await indexed.bodies("k") == [b"%d" % number for number in range(12, 20)]
    marks = json.loads((indexed.directory / "index.checkpoint").read_text())["files"]
    assert all(mark["end_position"] >= positions[12] for mark in marks)


async def test_an_index_that_begins_late_skips_what_is_gone(indexed):
    positions = [await indexed.send(b"%d" % n, key=f"K{n}", KEYS="k") for n in range(9)]
    await indexed.rig.log.retain_from(positions[5])
    assert await indexed.bodies("k") == [b"5", b"6", b"7", b"8"]


async def test_a_full_disk_stops_the_index_alone(indexed, monkeypatch, caplog):
    await indexed.send(b"one", key="U1")
    assert await indexed.bodies("U1") == [b"one"]

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    await indexed.send(b"two", key="U2")
    with monkeypatch.context() as patch:
        patch.setattr("broker.index.index_file.os.pwrite", full)
        indexed.indexer.round()
        assert indexed.indexer.behind
        assert "no room on the disk" in caplog.text
    indexed.indexer._waits_until_s = 0.0
    assert await indexed.bodies("U2") == [b"two"]


async def test_a_broker_on_a_full_disk_stops_and_starts_without_its_index(
    indexed, monkeypatch, caplog
):
    """It serves what it has, and retention makes room: the index opens then."""
    await indexed.send(b"one", key="U1")
    assert await indexed.bodies("U1") == [b"one"]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("broker.index.message_index.write_fully", full)
        await indexed.restart(killed=False)
        indexed.indexer._waits_until_s = 0.0
        indexed.indexer.round()
        await until(lambda: "is not open" in caplog.text)
        monkeypatch.setattr("broker.index.query_message._CATCH_UP_S", 0.05)
        assert (await indexed.query("U1")).code == ResponseCode.SYSTEM_BUSY
    indexed.indexer._waits_until_s = 0.0
    indexed.indexer.round()
    await until(lambda: indexed.indexer._is_open)
    monkeypatch.setattr("broker.index.query_message._CATCH_UP_S", 5.0)
    assert await indexed.bodies("U1") == [b"one"]


async def test_an_index_of_another_log_on_a_full_disk_stops_nobody(indexed, monkeypatch):
    await indexed.send(b"one", key="U1")
    assert await indexed.bodies("U1") == [b"one"]
    indexed.rig.machine.applied_position = 0

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("broker.index.message_index.write_fully", full)
    assert not await indexed.indexer.caught_up(0.05)


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("is_behind", [True, False])
async def test_no_part_is_shown_as_the_whole(indexed, monkeypatch, leads, is_behind):
    """Messages of the key may be committed that this replica, or its index, has not got."""
    await indexed.send(b"one", key="U1", KEYS="k")
    assert await indexed.bodies("k") == [b"one"]
    monkeypatch.setattr("broker.index.query_message._CATCH_UP_S", 0.05)
    indexed.rig.log.leader = leads
    if is_behind:
        monkeypatch.setattr(indexed.indexer, "_work", lambda until_s: None)
        entry = indexed.rig.log.entries[-1]
        indexed.rig.machine.applied_position = entry.position + len(entry.payload) + 1
    for key in ("k", "U1", "unknown"):
        answer = await indexed.query(key)
        if not leads:
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "not the leader" in answer.remark
        elif is_behind:
            assert answer.code == ResponseCode.SYSTEM_BUSY
        else:
            known = ResponseCode.QUERY_NOT_FOUND if key == "unknown" else ResponseCode.SUCCESS
            assert answer.code == known
        assert bool(answer.body) == (answer.code == ResponseCode.SUCCESS)


async def test_a_hash_that_too_many_share_is_no_answer(indexed, monkeypatch):
    monkeypatch.setattr("broker.index.query_message._CANDIDATES_MAX", 8)
    await indexed.send(b"mine", key="Aa0")
    for number in range(8):  # Java's hash of "Aa" is that of "BB"
        await indexed.send(b"other", key=f"K{number}", KEYS="BB0")
    answer = await indexed.query("Aa0")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "share the hash" in answer.remark
    assert await indexed.bodies("BB0", maxNum="3") == [b"other"] * 3


async def test_an_index_that_can_not_catch_up_says_so(indexed, monkeypatch):
    await indexed.send(b"one", key="U1")
    monkeypatch.setattr("broker.index.query_message._CATCH_UP_S", 0.05)
    indexed.indexer._is_open = False
    answer = await indexed.query("U1")
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert "bytes behind" in answer.remark
    indexed.indexer._is_open = True
    assert await indexed.bodies("U1") == [b"one"]


@pytest.mark.parametrize("fresh", [True, False])
async def test_entries_come_from_what_was_applied_or_from_the_log(indexed, fresh):
    bodies = [b"%d" % number for number in range(9)]
    for number, body in enumerate(bodies):
        await indexed.send(body, key=f"K{number}", KEYS=f"k{number % 3}")
        if not fresh and number == 5:
            indexed.rig.applied.clear()  # the first six must be read from the log
    assert await indexed.bodies("k1") == [b"1", b"4", b"7"]
    assert [await indexed.bodies(f"K{number}") for number in range(9)] == [[b] for b in bodies]
    assert len(indexed.indexer.index) == 18


def test_applied_entries_are_one_stretch_and_bounded():
    entries = AppliedEntries(size_max=100)
    position = 0

    def put(size: int) -> int:
        nonlocal position
        begin, position = position, position + HEADER_SIZE_OF_ENTRY + size
        payload = bytes(size)
        entry = CommittedEntry(
            index=1,
            term=1,
            kind=EntryKind.NOOP,
            position=begin + HEADER_SIZE_OF_ENTRY,
            payload=payload,
            chain=0,
        )
        entries.put(entry, None)
        return begin

    first, second, third = put(10), put(10), put(10)
    assert entries.take(first) is not None
    assert entries.take(first + 1) is None
    assert entries.take(third) is not None, "those before it go"
    assert entries.take(second) is None
    fourth = put(101)
    fifth = put(1)
    assert entries.take(fourth) is None, "more than is kept"
    assert entries.take(fifth) is not None
    sixth = put(1)
    position += 1_000
    seventh = put(1)
    assert entries.take(sixth) is None, "no holes"
    assert entries.take(seventh) is not None


async def test_a_flush_meets_a_growing_and_a_closed_file(tmp_path):
    shape = IndexShape(slot_count=5_000, unit_count=100_000)
    file = IndexFile(tmp_path, shape, IndexFileMark(name="a", from_position=0))
    for start in range(0, 40_000, 1_000):
        rows = IndexedKeys.of([(hashed * 7, hashed, 0) for hashed in range(start, start + 1_000)])
        flushing = asyncio.create_task(asyncio.to_thread(file.flush))
        await turns(1)
        file.append(rows)
        await flushing
    file.flush()
    mark = file.mark
    file.append(IndexedKeys.of([(1, 1, 1)]))
    file.close()
    file.flush()
    again = IndexFile(tmp_path, shape, mark)
    for hashed in range(0, 40_000, 997):
        assert hashed in found_in(again, tmp_path, shape, hashed * 7)
    again.close()


async def test_a_round_indexes_without_being_asked(indexed):
    await indexed.send(b"one", key="U1")
    indexed.indexer.round()
    assert indexed.indexer.behind == 0
    assert len(indexed.indexer.index) == 1
    await turns(1)


async def test_rounds_wait_for_a_second_or_for_much(indexed, monkeypatch):
    now_s = 100.0
    monkeypatch.setattr(indexer.time, "monotonic", lambda: now_s)
    await indexed.send(b"one", key="U1")
    indexed.indexer.round()
    assert indexed.indexer.behind == 0, "the first second is over"
    await indexed.send(b"two", key="U2")
    now_s += 0.9
    indexed.indexer.round()
    assert 0 < indexed.indexer.behind < 1_000, "it gathers"
    await indexed.send(bytes(256 << 10), key="U3")
    indexed.indexer.round()
    assert indexed.indexer.behind == 0, "it is much"
    await indexed.send(b"four", key="U4")
    now_s += 1.1
    indexed.indexer.round()
    assert indexed.indexer.behind == 0, "it is time"


@pytest.mark.parametrize("words", [True, False])
async def test_entries_say_whether_words_must_be_looked_for(indexed, words):
    await indexed.send(b"KEYS\x01in the body\x02", key="U1", **({"KEYS": "w"} if words else {}))
    payload = decode_payload(indexed.rig.log.entries[-1].payload)
    assert payload.may_have_words == words
    assert await indexed.bodies("U1") == [b"KEYS\x01in the body\x02"]
    assert bool(await indexed.bodies("w")) == words
