"""The CommitLog of the engines `async` and `sync`, against a list, over a disk that forgets."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest

from broker.entry.payload import UNIT, decode_payload
from broker.ha.commit_log import CommitLog, Standing
from broker.ha.framing import (
    HEAD_OVERHEAD,
    SYSTEM_TOPIC,
    TERM,
    FramingError,
    encode_blank,
    encode_entry,
    parse,
)
from raft.log.disk import OsDisk
from raft.log.log_format import CorruptLogError
from raft.messages import LogBase
from remoting.records.message import decode_record
from tests.broker.ha.payloads import STORED_MS, payload_at, record, slot
from tests.raft.forgetful_disk import ForgetfulDisk

FILE_SIZE = 2_000
START = LogBase(index=0, term=TERM, position=0, chain=0)


def open_log(disk: object) -> CommitLog:
    return CommitLog(disk, "log", file_size=FILE_SIZE)  # type: ignore[arg-type]


def append(log: CommitLog, bodies: list[bytes], *, first: int = 0) -> Standing:
    payload = payload_at(slot(log.end.position), bodies, first=first)
    if not log.fits(len(payload)):
        log.roll()
        payload = payload_at(slot(log.end.position), bodies, first=first)
    return log.append(payload)


def payloads(log: CommitLog) -> list[bytes]:
    return [standing.payload for standing in log.entries_behind(log.begin)]


def test_an_entry_is_records_of_rocketmq() -> None:
    payload = payload_at(slot(0), [b"one", b"two"])
    pieces, after = encode_entry(payload, START)
    data = b"".join(pieces)
    head = decode_record(data)
    assert (head.topic, head.queue_id, head.queue_offset) == (SYSTEM_TOPIC, 0, 0)
    head_size = int.from_bytes(data[:4], "big")
    assert head.flag == len(data) - head_size
    at, bodies = head_size, []
    for unit in UNIT.iter_unpack(decode_payload(payload).runs[0].units):
        stored = decode_record(data, at)
        assert unit[:2] == (at, int.from_bytes(data[at : at + 4], "big"))
        assert stored.physical_offset == at
        bodies.append(stored.body)
        at += unit[1]
    assert bodies == [b"one", b"two"]
    assert at == len(data) == HEAD_OVERHEAD + len(payload) == after.position
    framed = parse(data, START, file_left=FILE_SIZE)
    assert (framed.payload, framed.size, framed.chain) == (payload, len(data), after.chain)
    assert framed.position == slot(0)


def test_every_byte_of_an_entry_is_checked() -> None:
    data = bytearray(b"".join(encode_entry(payload_at(slot(0), [b"one"]), START)[0]))
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x41
        with pytest.raises(FramingError):
            parse(bytes(broken), START, file_left=FILE_SIZE)


def test_an_entry_behind_another_place_is_none() -> None:
    data = b"".join(encode_entry(payload_at(slot(0), [b"one"]), START)[0])
    for other in (
        LogBase(index=1, term=TERM, position=0, chain=0),
        LogBase(index=0, term=TERM, position=8, chain=0),
        LogBase(index=0, term=TERM, position=0, chain=8),
    ):
        with pytest.raises(FramingError):
            parse(data, other, file_left=FILE_SIZE)


def test_a_record_of_rocketmq_is_an_entry_of_its_own() -> None:
    data = record("T", 7, 100, b"theirs")
    place = LogBase(index=4, term=TERM, position=100, chain=9)
    framed = parse(data, place, file_left=FILE_SIZE)
    assert framed.payload is not None
    (run,) = decode_payload(framed.payload).runs
    assert (run.topic, run.queue_id, run.first_queue_offset) == ("T", 0, 7)
    assert UNIT.unpack(run.units) == (100, len(data), 97)
    assert framed.size == len(data)
    assert framed.position + len(framed.payload) == 100 + len(data)


def test_a_delayed_record_of_rocketmq_waits_from_when_it_was_stored() -> None:
    data = record("SCHEDULE_TOPIC_XXXX", 0, 0, b"late")
    payload = parse(data, START, file_left=FILE_SIZE).payload
    assert payload is not None
    (run,) = decode_payload(payload).runs
    assert UNIT.unpack(run.units) == (0, len(data), STORED_MS + 1_000)


def test_a_record_that_has_no_place_in_a_queue_is_refused() -> None:
    data = record("SCHEDULE_TOPIC_XXXX", 0, 0, b"late")
    assert parse(data, START, file_left=FILE_SIZE).payload is not None
    wrong = bytearray(data)
    wrong[12:16] = (99).to_bytes(4, "big")  # no queue of a delay level
    with pytest.raises(FramingError, match="without a place"):
        parse(bytes(wrong), START, file_left=FILE_SIZE)


def test_a_blank_ends_its_file_and_nothing_else() -> None:
    assert parse(encode_blank(50), START, file_left=50).payload is None
    with pytest.raises(FramingError, match="BLANK of 50 bytes"):
        parse(encode_blank(50), START, file_left=51)


def test_entries_are_read_as_they_were_appended(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    log = open_log(disk)
    written = [append(log, [b"x" * 40] * (n % 4), first=n) for n in range(30)]
    assert len(disk.list("log")) > 2
    for standing in written:
        for run in decode_payload(standing.payload).runs:
            for position, size, _ in UNIT.iter_unpack(run.units):
                assert decode_record(log.read(position, size)).physical_offset == position
    assert [one.payload for one in written] == payloads(log)
    end = log.end
    log.sync()
    log.close()
    again = open_log(disk)
    assert again.end == end
    assert list(again.entries_behind(again.begin)) == written
    with pytest.raises(LookupError):
        again.read(end.position - 1, 2)
    again.close()


def test_a_cut_at_every_byte_leaves_whole_entries() -> None:
    """A crash may leave any beginning of what no fsync covered."""
    disk = ForgetfulDisk(random.Random(1))
    log = open_log(disk)
    for number in range(3):
        append(log, [b"durable"], first=number)
    log.sync()
    durable = log.end
    tail = [append(log, [b"lost", b"perhaps"], first=3 + 2 * n) for n in range(2)]
    log.close()
    path = f"log/{0:020d}"
    for cut in range(durable.position, tail[-1].after.position + 1):
        crashed = copy.deepcopy(disk)
        crashed.content(path)[cut:] = bytes(FILE_SIZE - cut)
        again = open_log(crashed)
        kept = [one for one in tail if one.after.position <= cut]
        assert again.end == (kept[-1].after if kept else durable)
        assert len(payloads(again)) == 3 + len(kept)
        left = crashed.content(path)[again.end.position :]
        assert left == bytes(FILE_SIZE - again.end.position)
        append(again, [b"next"], first=9)
        again.sync()


def test_damage_of_what_was_durable_is_refused(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    log = open_log(disk)
    for number in range(3):
        append(log, [b"durable"], first=number)
    log.sync()
    log.close()
    path = tmp_path / "log" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[log.end.position - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError, match="the log was durable up to"):
        open_log(disk)
    path.unlink()
    with pytest.raises(CorruptLogError, match="the file is missing"):
        open_log(disk)


def test_another_file_size_is_refused(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    log = open_log(disk)
    for number in range(20):
        append(log, [b"x" * 40], first=number)
    log.close()
    with pytest.raises(CorruptLogError):
        CommitLog(disk, "log", file_size=FILE_SIZE * 2)


@pytest.mark.parametrize("seed", range(40))
def test_the_log_is_what_the_model_is(seed: int) -> None:
    """Against a list: appends, fsyncs, full disks, crashes, removals, truncations."""
    rng = random.Random(seed)
    disk = ForgetfulDisk(rng)
    log = open_log(disk)
    model: list[Standing] = []
    durable = 0  # how many of the model no crash may take
    for _ in range(120):
        draw = rng.random()
        if draw < 0.6:
            bodies = [bytes([rng.randrange(256)]) * rng.randrange(60)] * rng.randrange(4)
            disk.is_full = rng.random() < 0.1
            try:
                model.append(append(log, bodies, first=len(model)))
            except OSError:
                assert disk.is_full
            disk.is_full = False
        elif draw < 0.75:
            log.sync()
            durable = len(model)
        elif draw < 0.85:
            disk.crash(keep=rng.choice([0.0, 0.5, 1.0]))
            log = open_log(disk)
            there = list(log.entries_behind(log.begin))
            assert there == model[: len(there)]
            assert len(there) >= durable
            model = model[: len(there)]
            durable = len(model)
        elif draw < 0.93 and model:
            position = rng.choice(model).before.position
            before, files_max = log.begin.position, rng.choice([None, 1, 2])
            begin = log.drop_before(position, files_max)
            assert begin <= max(position, before)
            if files_max is not None:
                assert begin - before <= files_max * FILE_SIZE
            else:
                assert begin == max(before, position - position % FILE_SIZE)
            gone = sum(one.before.position < begin for one in model)
            del model[:gone]
            durable = max(0, durable - gone)
        elif model:
            kept = rng.randrange(len(model) + 1)
            log.truncate(model[kept - 1].after if kept else log.begin)
            del model[kept:]
            durable = min(durable, kept)
        there = list(log.entries_behind(log.begin))
        assert there == model
        assert log.last_before() == (model[-1].before if model else log.begin)
        assert log.end.position == log.raw_end


@pytest.mark.parametrize("seed", range(20))
def test_bytes_received_in_any_pieces_are_the_same_log(seed: int) -> None:
    rng = random.Random(seed)
    source = open_log(ForgetfulDisk(rng))
    for number in range(30):
        append(source, [b"x" * rng.randrange(60)] * rng.randrange(3), first=number)
    target = open_log(ForgetfulDisk(rng))
    taken: list[Standing] = []
    while target.raw_end < source.raw_end:
        target.receive(source.read_chunk(target.raw_end, rng.randrange(1, 400)))
        while (standing := target.take()) is not None:
            taken.append(standing)
    assert target.end == source.end
    assert taken == list(source.entries_behind(source.begin))


def test_bytes_of_another_log_are_refused() -> None:
    rng = random.Random(1)
    source, target = open_log(ForgetfulDisk(rng)), open_log(ForgetfulDisk(rng))
    append(source, [b"theirs"])
    append(source, [b"more"], first=1)
    first = append(target, [b"ours..", b"x"])
    target.receive(source.read_chunk(first.after.position, 4_000))
    with pytest.raises(FramingError):
        target.take()


def test_a_record_without_a_chain_is_taken_where_none_is_needed() -> None:
    log = open_log(ForgetfulDisk(random.Random(1)))
    log.receive(record("T", 0, 0, b"theirs"))
    with pytest.raises(FramingError, match="names no chain"):
        log.take(named=True)
    assert log.end.index == 0
    assert log.take() is not None
    log.receive(encode_entry(payload_at(log.end.position, [b"ours"]), log.end)[0][0])
    assert log.take(named=True) is None, "the rest of it is on its way"


@pytest.mark.parametrize("by_master", [True, False])
def test_nothing_is_claimed_once_an_fsync_has_failed(by_master: bool) -> None:
    """Whoever syncs next succeeds: what the failed one was for may be on no disk."""
    rng = random.Random(1)
    source_disk, target_disk = ForgetfulDisk(rng), ForgetfulDisk(rng)
    source, target = open_log(source_disk), open_log(target_disk)
    append(source, [b"x" * 1_000])
    disk, log = (source_disk, source) if by_master else (target_disk, target)
    if by_master:
        disk.fail_syncs = True
        with pytest.raises(OSError, match="Input/output"):
            source.roll()
    else:
        append(source, [b"x" * 1_000], first=1)
        while target.raw_end < FILE_SIZE:
            target.receive(source.read_chunk(target.raw_end, 700))
        assert target.take() is not None
        disk.fail_syncs = True
        with pytest.raises(OSError, match="Input/output"):
            target.take()  # the BLANK that ends the file
    disk.fail_syncs = False
    durable = log.durable
    assert durable.position < log.end.position
    for claim in (log.sync, lambda: log.claim(log.end)):
        with pytest.raises(OSError, match="Input/output"):
            claim()
    assert log.durable == durable
