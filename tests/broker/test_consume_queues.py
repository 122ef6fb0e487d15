"""ConsumeQueues over restarts, installs, retention, lost files and full disks."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.entry.payload import UNIT, Run
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.consume_queues import ConsumeQueues
from broker.queues.derived_files import FILE_SIZE, FILE_UNITS

KEY = ("T", 0)


def run_of(first: int, count: int, key: tuple[str, int] = KEY) -> Run:
    """Records of 100 bytes, the one at offset n at position 100 * n."""
    units = all_units()[first * UNIT.size : (first + count) * UNIT.size]
    return Run(*key, first, units, None)


@lru_cache(maxsize=1)
def all_units() -> bytes:
    return b"".join([UNIT.pack(100 * n, 100, n) for n in range(2 * FILE_UNITS + 1_000)])


def append(queues: ConsumeQueues, first: int, count: int) -> None:
    queues.get(*KEY).append(first, run_of(first, count).units)


def reopened(tmp_path: Path, ends: dict[tuple[str, int], int]) -> ConsumeQueues:
    """What a restart at a snapshot with these ends finds."""
    queues = ConsumeQueues(tmp_path / "consumequeue")
    queues.restore(ends)
    return queues


def files_of(tmp_path: Path) -> list[Path]:
    """Of the one queue, without their checks."""
    return sorted(p for p in (tmp_path / "consumequeue").glob("*/*/*") if p.name.isdecimal())


def bounds(queues: ConsumeQueues) -> tuple[int, int]:
    queue = queues.get(*KEY)
    return queue.min_offset, queue.next_offset


def shown(queues: ConsumeQueues) -> bytes:
    """All units that the queue shows."""
    queue = queues.get(*KEY)
    pieces, at = [], queue.min_offset
    while at < queue.next_offset:
        pieces.append(queue.read(at, 100_000))
        at += len(pieces[-1]) // UNIT.size
    return b"".join(pieces)


def test_a_restart_takes_the_files_as_they_are(tmp_path):
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, FILE_UNITS + 10)
    queues.sync()
    queues.close()
    files = files_of(tmp_path)
    written = [file.stat().st_mtime_ns for file in files]
    again = reopened(tmp_path, {KEY: FILE_UNITS + 5})
    assert not again.is_filling
    assert bounds(again) == (0, FILE_UNITS + 5)
    assert shown(again) == run_of(0, FILE_UNITS + 5).units
    assert [file.stat().st_mtime_ns for file in files] == written, "nothing is written again"
    append(again, FILE_UNITS + 5, 5)  # the replay behind the snapshot
    assert bounds(again) == (0, FILE_UNITS + 10)
    again.close()


@pytest.mark.parametrize("lost", ["all", "first", "last", "shortened", "tail of zeros"])
def test_lost_files_are_built_again_from_the_log(tmp_path, lost):
    end = 2 * FILE_UNITS + 7
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, end)
    queues.close()
    files = files_of(tmp_path)
    for file in {"all": files, "first": files[:1], "last": files[-1:]}.get(lost, []):
        file.unlink()
    if lost == "shortened":
        os.truncate(files[0], FILE_SIZE // 2)
    elif lost == "tail of zeros":
        with files[1].open("r+b") as file:
            file.seek(FILE_SIZE - 40)
            file.write(bytes(40))
    again = reopened(tmp_path, {KEY: end})
    assert again.is_filling
    assert shown(again) == b"", "a queue shows no unit that is not there"
    for first in range(0, end, 100_000):
        assert again.fill(run_of(first, min(100_000, end - first)))
        assert shown(again) == run_of(0, min(end, first + 100_000)).units
    again.end_filling()
    assert bounds(again) == (0, end)
    assert not again.is_filling
    again.close()


def test_an_installed_queue_begins_with_the_logs_first_run(tmp_path):
    queues = reopened(tmp_path, {KEY: 500, ("Old", 0): 30})
    assert bounds(queues) == (500, 500), "empty until it is filled"
    assert queues.fill(run_of(200, 100))
    assert not queues.fill(run_of(200, 100)), "the same entry again changes nothing"
    assert queues.fill(run_of(250, 250)), "what of it is known is left"
    queues.end_filling()
    assert bounds(queues) == (200, 500)
    assert shown(queues) == run_of(200, 300).units
    old = queues.get("Old", 0)
    assert (old.min_offset, old.next_offset) == (30, 30), "none of its records is in the log"
    append(queues, 500, 1)
    queues.sync()
    queues.close()
    again = reopened(tmp_path, {KEY: 501, ("Old", 0): 30})
    assert not again.is_filling
    assert bounds(again) == (200, 501)
    again.close()


def test_an_install_behind_a_gap_forgets_what_was_before_it(tmp_path):
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, 100)
    queues.restore({KEY: 900})
    assert queues.is_filling
    queues.fill(run_of(800, 100))
    queues.end_filling()
    assert bounds(queues) == (800, 900)
    assert shown(queues) == run_of(800, 100).units
    queues.close()


def test_an_install_that_was_broken_off_is_filled_again(tmp_path):
    queues = reopened(tmp_path, {KEY: FILE_UNITS + 500})
    queues.fill(run_of(FILE_UNITS + 200, 100))
    queues.close()
    again = reopened(tmp_path, {KEY: FILE_UNITS + 500})
    assert again.is_filling
    again.fill(run_of(FILE_UNITS + 200, 300))
    again.end_filling()
    again.trim(100 * (FILE_UNITS + 200))
    assert bounds(again) == (FILE_UNITS + 200, FILE_UNITS + 500)
    again.sync()
    again.close()
    assert not reopened(tmp_path, {KEY: FILE_UNITS + 500}).is_filling


@pytest.mark.parametrize("filled", [0, 3])
def test_a_trim_while_a_queue_is_filled_hides_nothing_after_a_restart(tmp_path, filled):
    """A restart trims before it fills; where it is broken off then, the next one fills again."""
    queues = reopened(tmp_path, {KEY: 6})
    queues.trim(0)
    if filled:
        queues.fill(run_of(1, filled))
        queues.trim(100)
    queues.close()
    again = reopened(tmp_path, {KEY: 6})
    again.trim(100)
    assert again.is_filling
    again.fill(run_of(1, 5))
    again.end_filling()
    assert shown(again) == run_of(1, 5).units
    again.close()


@settings(deadline=None, max_examples=60)
@given(
    end=st.integers(1, FILE_UNITS * 2),
    positions=st.lists(st.integers(0, 100 * FILE_UNITS * 2 + 200), min_size=1, max_size=4),
)
@example(end=FILE_UNITS, positions=[100 * FILE_UNITS - 99])
def test_trimming_keeps_exactly_what_the_log_has(tmp_path_factory, end, positions):
    tmp_path = tmp_path_factory.mktemp("trim")
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, end)
    for position in sorted(positions):
        queues.trim(position)
        expected = min(end, -(-position // 100))
        assert bounds(queues) == (expected, end)
    names = {int(path.name) for path in files_of(tmp_path)}
    assert expected == end or min(names) == expected // FILE_UNITS * FILE_SIZE
    queues.sync()
    queues.close()
    again = reopened(tmp_path, {KEY: end})
    assert not again.is_filling, "what retention took is not missing"
    assert bounds(again) == (expected, end)
    again.trim(max(positions))
    assert bounds(again) == (expected, end)
    again.close()


def test_a_begin_that_has_changed_hides_no_message(tmp_path):
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, 100)
    queues.trim(100 * 10)
    queues.sync()
    queues.close()
    note = tmp_path / "consumequeue.begins"
    assert "10]" in note.read_text()
    note.write_text(note.read_text().replace("10]", "90]"))
    again = reopened(tmp_path, {KEY: 100})
    again.trim(100 * 10)  # as every start does
    assert bounds(again) == (10, 100)
    again.close()


def test_a_start_from_before_a_deletion_takes_nothing_that_stands_behind_it(tmp_path):
    """The file is there, and sound: it begins with the units behind, and zeros before them."""
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, 100)
    queues.sync()
    queues.delete_topics({"T"})
    queues.note_begins()
    append(queues, 100, 50)
    queues.sync()
    queues.close()
    again = reopened(tmp_path, {KEY: 60})
    assert not again.is_filling
    assert (bounds(again), shown(again)) == ((60, 60), b"")
    append(again, 60, 40)  # the replay up to the deletion, and behind it
    again.delete_topics({"T"})
    again.note_begins()
    append(again, 100, 50)
    assert (bounds(again), shown(again)) == ((100, 150), run_of(100, 50).units)
    again.close()


def test_without_its_note_a_trimmed_queue_is_built_again(tmp_path):
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, FILE_UNITS + 100)
    queues.trim(100 * (FILE_UNITS + 50))
    queues.close()
    (tmp_path / "consumequeue.begins").write_text("{")
    again = reopened(tmp_path, {KEY: FILE_UNITS + 100})
    assert again.is_filling
    again.fill(run_of(FILE_UNITS + 50, 50))
    again.end_filling()
    assert bounds(again) == (FILE_UNITS + 50, FILE_UNITS + 100)
    again.close()


def test_an_older_state_takes_queues_back(tmp_path):
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, 50)
    queues.get("New", 1).append(0, run_of(0, 3, ("New", 1)).units)
    queues.sync()
    queues.restore({KEY: 20})
    assert bounds(queues) == (0, 20)
    assert queues.get("New", 1).next_offset == 0
    append(queues, 20, 30)
    assert shown(queues) == run_of(0, 50).units
    queues.close()


def test_a_sync_covers_what_was_appended_and_survives_retention(tmp_path, monkeypatch):
    synced: list[Path] = []
    real = os.fsync

    def recording(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, FILE_UNITS + 1)
    queues.sync()
    files = files_of(tmp_path)
    assert set(files) < set(synced)
    assert {files[0].parent, files[0].parent.parent} < set(synced)
    synced.clear()
    queues.sync()
    assert synced == [], "nothing was written since"
    append(queues, FILE_UNITS + 1, 1)
    queues.trim(10**9)
    files[1].unlink()
    queues.sync()
    queues.close()


@pytest.mark.parametrize("at", [3, 20 * FILE_UNITS - 1, 20 * FILE_UNITS + 20 * 40 + 17])
def test_damage_in_what_was_synced_is_found_and_built_again(tmp_path, at):
    end = FILE_UNITS + 100
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, FILE_UNITS + 20)
    queues.sync()
    append(queues, FILE_UNITS + 20, 80)
    queues.sync()  # the check of the second file goes on from where it was
    queues.close()
    assert not reopened(tmp_path, {KEY: end}).is_filling
    with files_of(tmp_path)[at // FILE_SIZE].open("r+b") as file:
        file.seek(at % FILE_SIZE)
        byte = file.read(1)[0]
        file.seek(at % FILE_SIZE)
        file.write(bytes([byte ^ 0x10]))
    again = reopened(tmp_path, {KEY: end})
    assert again.is_filling
    again.fill(run_of(0, end))
    assert not again.wants_sync, "there will be more"
    again.end_filling()
    assert shown(again) == run_of(0, end).units
    assert again.wants_sync
    again.sync()
    again.close()
    assert not reopened(tmp_path, {KEY: end}).is_filling


@pytest.mark.parametrize(
    "left",
    [
        b"",
        b"LMQU" + bytes([0, 0, 0, 10]),
        b"LMQU" + bytes([0, 0, 0, 10]) + bytes(4),
        "of nine units",
    ],
)
def test_what_no_check_vouches_for_is_built_again(tmp_path, left):
    """A check is not fsynced: a failure of power may leave none of it, a part, or an older one."""
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, 9)
    queues.sync()
    check = files_of(tmp_path)[0].with_suffix(".crc")
    older = check.read_bytes()
    append(queues, 9, 1)
    queues.sync()
    queues.close()
    assert check.read_bytes()[:8].hex() == "4c4d51550000000a"
    assert not reopened(tmp_path, {KEY: 10}).is_filling
    assert not reopened(tmp_path, {KEY: 9}).is_filling, "an older snapshot needs less"
    check.write_bytes(left if isinstance(left, bytes) else older)
    assert reopened(tmp_path, {KEY: 10}).is_filling
    assert not check.exists(), "it went with its file"


def test_a_file_that_was_being_built_when_the_power_failed_is_built_again(tmp_path):
    """Its end is on the disk, and a sector before it is not: the state has all of it."""
    queues = reopened(tmp_path, {KEY: 44})
    assert queues.fill(run_of(0, 44))
    queues.end_filling()
    queues.close()
    with files_of(tmp_path)[0].open("r+b") as file:
        file.seek(20 * 40)
        file.write(bytes(40))
    again = reopened(tmp_path, {KEY: 44})
    assert again.is_filling
    again.fill(run_of(0, 44))
    again.end_filling()
    assert shown(again) == run_of(0, 44).units


def test_a_full_disk_costs_checks_and_so_a_rebuild(tmp_path, monkeypatch):
    real = Path.write_bytes

    def no_room(path: Path, data: bytes) -> int:
        if path.suffix == ".crc":
            real(path, b"")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, data)

    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, FILE_UNITS + 10)
    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", no_room)
        queues.sync()
    checks = [file.with_suffix(".crc") for file in files_of(tmp_path)]
    assert [check.read_bytes() for check in checks] == [b"", b""]
    queues.sync()
    assert [len(check.read_bytes()) for check in checks] == [12, 12], "once there is room"
    queues.close()
    assert not reopened(tmp_path, {KEY: FILE_UNITS + 10}).is_filling


def test_a_second_sync_waits_for_what_the_first_has_begun(tmp_path, monkeypatch):
    """A snapshot's, while what was built again is synced: it counts on every unit."""
    begun, go_on = threading.Event(), threading.Event()
    real = os.fsync

    def slow(descriptor: int) -> None:
        begun.set()
        assert go_on.wait(10)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, 10)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(queues.sync)
        assert begun.wait(10)
        second = threads.submit(queues.sync)
        assert not wait([second], timeout=0.1).done
        go_on.set()
        first.result(10)
        second.result(10)
    queues.close()


def test_units_behind_the_last_sync_are_written_again(tmp_path):
    """A crash of the machine may leave anything there."""
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, 10)
    queues.sync()
    append(queues, 10, 10)
    queues.close()
    with files_of(tmp_path)[0].open("r+b") as file:
        file.seek(10 * 20)
        file.write(bytes(200))
    again = reopened(tmp_path, {KEY: 10})
    assert not again.is_filling
    append(again, 10, 10)
    assert shown(again) == run_of(0, 20).units
    again.close()


def test_units_wait_in_memory_for_room_on_the_disk(tmp_path, monkeypatch):
    real = os.pwrite
    room = [25]  # bytes that the disk still takes

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(descriptor, data[: room[0]], offset)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", pwrite)
    queues = ConsumeQueues(tmp_path / "consumequeue")
    append(queues, 0, 3)
    append(queues, 3, 4)
    assert bounds(queues) == (0, 7)
    assert shown(queues) == run_of(0, 7).units, "what is committed is readable"
    queues.write_held()
    assert shown(queues) == run_of(0, 7).units
    room[0] = 10**9
    queues.write_held()
    append(queues, 7, 1)
    queues.sync()
    queues.close()
    assert shown(reopened(tmp_path, {KEY: 8})) == run_of(0, 8).units


def test_another_error_than_a_full_disk_is_raised(tmp_path, monkeypatch):
    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match="Input/output"):
        ConsumeQueue(tmp_path).append(0, run_of(0, 1).units)
