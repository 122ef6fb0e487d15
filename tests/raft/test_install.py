"""Sending and receiving a snapshot file: whole or not at all, resumed where it broke."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from raft.events import InstallChunk
from raft.log.disk import OsDisk
from raft.membership import Member, encode_membership, make_membership
from raft.messages import InstallSnapshot, LogBase, NodeId
from raft.snapshots.install import InstallReceiver, InstallSender, RateLimit, Received
from raft.snapshots.snapshot import SnapshotFiles, SnapshotHeader
from tests.raft.forgetful_disk import ForgetfulDisk

LEADER, FOLLOWER = NodeId("leader"), NodeId("follower")
MEMBERSHIP = make_membership([Member(node_id=LEADER), Member(node_id=FOLLOWER)])
BASE = LogBase(index=4, term=1, position=400, chain=44)
STATE = [bytes([n]) * 1000 for n in range(20)]


def write(files: SnapshotFiles, index: int = 9) -> None:
    header = SnapshotHeader(
        last=LogBase(index=index, term=2, position=900, chain=99),
        config_index=3,
        membership=encode_membership(MEMBERSHIP),
    )
    files.write(header, STATE)


def sender(files: SnapshotFiles, chunk_size_bytes: int = 3000) -> InstallSender:
    return InstallSender(LEADER, files, lambda: BASE, chunk_size_bytes=chunk_size_bytes)


def receiver(files: SnapshotFiles, size_bytes_max: int = 1 << 20) -> InstallReceiver:
    return InstallReceiver(files, size_bytes_max=size_bytes_max)


def wanted(offset: int = 0, index: int | None = None, term: int = 5) -> InstallChunk:
    return InstallChunk(
        receiver=FOLLOWER,
        term=term,
        snapshot_index=index,
        base_index=0 if index is None else BASE.index,
        offset=offset,
    )


def piece(source: InstallSender, chunk: InstallChunk) -> InstallSnapshot:
    message = source.read(chunk)
    assert message is not None
    return message


@pytest.fixture
def there(tmp_path: Path) -> SnapshotFiles:
    files = SnapshotFiles(OsDisk(tmp_path / "there"))
    write(files)
    return files


@pytest.fixture
def here(tmp_path: Path) -> SnapshotFiles:
    return SnapshotFiles(OsDisk(tmp_path / "here"))


def test_a_snapshot_arrives_byte_for_byte(there: SnapshotFiles, here: SnapshotFiles) -> None:
    source, target = sender(there), receiver(here)
    received, index, pieces = Received(next_offset=0), None, 0
    while not received.whole:
        message = piece(source, wanted(received.next_offset, index))
        assert message.base == BASE
        assert message.configuration.index == 3
        assert message.configuration.membership == MEMBERSHIP
        assert here.indexes() == [], "not before it is whole"
        received = target.store(message)
        index, pieces = message.snapshot_index, pieces + 1
    assert pieces == 7
    assert here.indexes() == [9]
    assert list(here.chunks(9)) == STATE
    assert here.verified(9) == there.verified(9)


def test_lost_repeated_and_overtaken_pieces_do_no_harm(
    there: SnapshotFiles, here: SnapshotFiles
) -> None:
    rng = random.Random(7)
    source, target = sender(there), receiver(here)
    first = piece(source, wanted())
    size = first.snapshot_size
    received = target.store(first)
    for _ in range(500):
        if received.whole:
            break
        offset = rng.choice([received.next_offset, rng.randrange(0, size, 3000)])
        received = target.store(piece(source, wanted(offset, 9)))
    assert received == Received(next_offset=size, whole=True)
    assert list(here.chunks(9)) == STATE


def test_a_piece_whose_checksum_is_wrong_is_asked_for_again(
    there: SnapshotFiles, here: SnapshotFiles
) -> None:
    source, target = sender(there), receiver(here)
    message = piece(source, wanted())
    broken = replace(message, data=bytes(len(message.data)))
    assert target.store(broken) == Received(next_offset=0)
    assert target.store(message) == Received(next_offset=3000)


def test_a_file_that_is_no_snapshot_is_not_used(
    there: SnapshotFiles, here: SnapshotFiles, caplog: pytest.LogCaptureFixture
) -> None:
    message = piece(sender(there, 1 << 20), wanted())
    data = bytearray(message.data)
    data[500] ^= 1
    wrong = replace(message, data=bytes(data), crc=zlib.crc32(data))
    assert receiver(here).store(wrong) == Received(next_offset=0)
    assert here.indexes() == []
    assert "is not used" in caplog.text
    renamed = replace(message, snapshot_index=10)
    assert receiver(here).store(renamed) == Received(next_offset=0)
    assert here.indexes() == []


def test_another_leader_begins_anew(there: SnapshotFiles, here: SnapshotFiles) -> None:
    source, target = sender(there), receiver(here)
    target.store(piece(source, wanted()))
    other = replace(piece(source, wanted(3000, 9)), sender=NodeId("other"))
    assert target.store(other) == Received(next_offset=0)
    begins = replace(piece(source, wanted(0, 9)), sender=NodeId("other"))
    assert target.store(begins) == Received(next_offset=3000)


def test_what_was_stored_before_a_kill_is_not_received_again(
    there: SnapshotFiles, here: SnapshotFiles
) -> None:
    write(here)
    message = piece(sender(there), wanted())
    assert receiver(here).store(message) == Received(next_offset=message.snapshot_size, whole=True)


def test_too_large_a_snapshot_is_not_taken(
    there: SnapshotFiles, here: SnapshotFiles, caplog: pytest.LogCaptureFixture
) -> None:
    target = receiver(here, size_bytes_max=10_000)
    assert target.store(piece(sender(there), wanted())) == Received(next_offset=0)
    assert "at most 10000 are taken" in caplog.text


def test_a_received_snapshot_survives_a_failure_of_power(there: SnapshotFiles) -> None:
    for seed in range(50):
        disk = ForgetfulDisk(random.Random(seed))
        target = receiver(SnapshotFiles(disk))
        assert target.store(piece(sender(there, 1 << 20), wanted())).whole
        disk.crash(keep=0.3)
        files = SnapshotFiles(disk)
        assert files.indexes() == [9]
        files.verified(9)


def test_a_transfer_keeps_its_snapshot_while_newer_ones_come(there: SnapshotFiles) -> None:
    source = sender(there)
    assert piece(source, wanted()).snapshot_index == 9
    write(there, 12)
    assert piece(source, wanted(3000, 9)).snapshot_index == 9
    there.remove(9)
    begun_anew = piece(source, wanted(6000, 9))
    assert (begun_anew.snapshot_index, begun_anew.offset) == (12, 0)


def test_a_damaged_snapshot_is_not_sent(tmp_path: Path, there: SnapshotFiles) -> None:
    write(there, 12)
    (tmp_path / "there" / there.path(12)).write_bytes(b"rotten")
    assert piece(sender(there), wanted()).snapshot_index == 9
    there.remove(9)
    assert sender(there).read(wanted()) is None


def test_a_full_disk_makes_a_transfer_wait(
    there: SnapshotFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on where it was once there is room; whoever asks is told so, and once."""
    disk = ForgetfulDisk(random.Random(1))
    here = SnapshotFiles(disk)
    source, target = sender(there), receiver(here)
    received = target.store(piece(source, wanted()))
    assert received == Received(next_offset=3000)
    disk.fail_writes = True
    message = piece(source, wanted(3000, 9))
    assert target.store(message) == Received(next_offset=3000)
    assert target.store(message) == Received(next_offset=3000)
    assert caplog.text.count("no room for the snapshot") == 1
    disk.fail_writes = False
    while not received.whole:
        received = target.store(piece(source, wanted(received.next_offset, 9)))
    assert list(here.chunks(9)) == STATE


def test_another_error_of_the_disk_is_raised(there: SnapshotFiles, here: SnapshotFiles) -> None:
    target = receiver(here)
    message = piece(sender(there, 1 << 20), wanted())
    with (
        mock.patch.object(OsDisk, "rename", side_effect=OSError(5, "Input/output error")),
        pytest.raises(OSError, match="Input/output"),
    ):
        target.store(message)


def test_a_close_waits_for_the_piece_that_is_being_stored(
    there: SnapshotFiles, here: SnapshotFiles
) -> None:
    """Its file's number may be another file's the moment after."""
    begun, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def accept(header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
        begun.set()
        assert go_on.wait(10)
        order.append("stored")

    target = InstallReceiver(here, size_bytes_max=1 << 20, accept=accept)
    message = piece(sender(there, 1 << 20), wanted())
    with ThreadPoolExecutor(2) as threads:
        storing = threads.submit(target.store, message)
        assert begun.wait(10)
        closing = threads.submit(target.close)
        closing.add_done_callback(lambda _: order.append("closed"))
        assert not wait([closing], timeout=0.1).done
        go_on.set()
        assert storing.result(10).whole
        closing.result(10)
    assert order == ["stored", "closed"]


def test_what_an_earlier_term_wanted_is_dropped(there: SnapshotFiles) -> None:
    source = sender(there)
    source.want(wanted(term=4))
    assert source.next(5) is None
    source.want(wanted(3000, 9))
    source.want(wanted(6000, 9))
    found = source.next(5)
    assert found is not None
    assert found.offset == 6000, "the newest takes the place of the one before"
    assert source.next(5) is None


def test_the_rate_holds_over_all_pieces() -> None:
    rate = RateLimit(1_000_000)
    now_ms = 0
    for _ in range(40):
        now_ms += round(rate.delay_ms(now_ms))
        rate.spent(now_ms, 250_000)
    assert 9_500 <= now_ms <= 10_000
    assert rate.delay_ms(now_ms + 60_000) == 0, "an idle time is no credit"
    rate.spent(now_ms + 60_000, 250_000)
    assert rate.delay_ms(now_ms + 60_000) == 250
    assert RateLimit(0).delay_ms(0) == 0
