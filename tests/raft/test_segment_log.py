"""SegmentLog against a dumb list, over a disk that forgets, tears and reorders at a crash."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raft.log.disk import OsDisk
from raft.log.log_format import HEADER_SIZE, CorruptLogError, encode_header
from raft.log.segment_log import SegmentLog, SyncedTo
from raft.messages import Entry, EntryKind
from tests.raft.forgetful_disk import ForgetfulDisk

FIRST = "commitlog/00000000000000000000"


def entry(index: int, term: int = 1, payload: bytes = b"payload") -> Entry:
    return Entry(index=index, term=term, kind=EntryKind.DATA, payload=payload)


def open_log(disk: OsDisk | ForgetfulDisk, segment_size: int = 1 << 20) -> SegmentLog:
    return SegmentLog(disk, "commitlog", segment_size_bytes_max=segment_size)


def filled(root: Path, count: int, segment_size: int = 1 << 20) -> SegmentLog:
    log = open_log(OsDisk(root), segment_size)
    log.append([entry(index, payload=b"%03d" % index * 10) for index in range(1, count + 1)])
    log.sync()
    return log


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_the_header_is_drawn_in_formats() -> None:
    header, chain = encode_header(
        Entry(index=0x0102, term=0x0304, kind=EntryKind.DATA, payload=b"xyz"), 0x0506, 0xDEADBEEF
    )
    assert header.hex(" ") == (
        "4c 4d 51 31 00 00 00 2f "
        "00 00 00 00 00 00 01 02 00 00 00 00 00 00 03 04 00 00 00 00 00 00 05 06 "
        "02 00 00 00 de ad be ef 68 54 b0 f4"
    )
    assert chain == zlib.crc32(header[:40] + b"xyz")


def test_entries_positions_and_chain_survive_a_restart(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, segment_size=500)
    positions = [log.position(index) for index in range(1, 101)]
    chains = [log.chain(index) for index in range(101)]
    log.close()
    again = open_log(OsDisk(tmp_path), 500)
    assert again.recovery.entries == 100
    assert again.recovery.torn_bytes == 0
    assert [again.position(index) for index in range(1, 101)] == positions
    assert [again.chain(index) for index in range(101)] == chains
    assert again.entries(1, 101, 1 << 30) == tuple(
        entry(index, payload=b"%03d" % index * 10) for index in range(1, 101)
    )
    assert again.read(again.position(7) + HEADER_SIZE, 30) == b"007" * 10
    assert len(list((tmp_path / "commitlog").iterdir())) > 10
    for segment in sorted((tmp_path / "commitlog").iterdir())[:-1]:
        assert segment.stat().st_size <= 500
    again.close()


def test_size_max_takes_at_least_one_and_then_what_fits(tmp_path: Path) -> None:
    log = filled(tmp_path, 10)
    size = HEADER_SIZE + 30
    assert [e.index for e in log.entries(3, 11, 0)] == [3]
    assert [e.index for e in log.entries(3, 11, 3 * size)] == [3, 4, 5]
    assert [e.index for e in log.entries(3, 11, 3 * size + size - 1)] == [3, 4, 5]
    assert [e.index for e in log.entries(3, 6, 1 << 20)] == [3, 4, 5]
    assert [e.index for e in log.entries(9, 11, 2 * size - 1)] == [9]
    assert log.entries(4, 4, 100) == ()
    with pytest.raises(IndexError):
        log.entries(3, 12, 100)
    log.close()


def test_a_guessed_stretch_does_not_spoil_later_reads(tmp_path: Path) -> None:
    """A position and a size that a stranger gave lead across entries, and across the end of what
    was kept in memory when the log was shorter."""
    log = SegmentLog(
        OsDisk(tmp_path), "commitlog", segment_size_bytes_max=1 << 20, tail_size_bytes_max=0
    )
    log.append([entry(index, payload=b"%03d" % index * 10) for index in range(1, 31)])
    log.sync()
    log.read(log.position(1) + HEADER_SIZE, 30)  # keeps what there is now
    log.append([entry(index, payload=b"%03d" % index * 10) for index in range(31, 61)])
    log.sync()
    stored = (tmp_path / FIRST).read_bytes()
    assert log.read(100, 4_000) == stored[100:4_100]
    for index in range(1, 61):
        position = log.position(index) + HEADER_SIZE
        assert log.read(position, 30) == stored[position : position + 30], index
    log.close()


def test_sync_says_what_it_covers(tmp_path: Path) -> None:
    log = open_log(OsDisk(tmp_path))
    assert log.sync() == SyncedTo(index=0, term=0)
    log.append([entry(1), entry(2, term=4)])
    assert log.sync() == SyncedTo(index=2, term=4)
    log.truncate_from(2)
    assert log.sync() == SyncedTo(index=1, term=1)
    log.close()


def test_a_truncated_tail_is_cut_off_the_file(tmp_path: Path) -> None:
    log = filled(tmp_path, 40, segment_size=500)
    log.truncate_from(5)
    assert log.last_index == 4
    end = log.end_position
    log.close()
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]
    assert (tmp_path / FIRST).stat().st_size == end
    again = open_log(OsDisk(tmp_path), 500)
    again.append([entry(5, term=2)])
    assert again.term(5) == 2
    again.close()


def test_reads_outside_the_log_are_refused(tmp_path: Path) -> None:
    log = filled(tmp_path, 20, segment_size=500)
    with pytest.raises(LookupError):
        log.read(log.end_position - 3, 4)
    with pytest.raises(LookupError):
        log.read(-1, 4)
    with pytest.raises(LookupError):
        log.read(440, 20)  # across two segments: no record does
    with pytest.raises(IndexError):
        log.term(21)
    log.close()


def test_half_an_entry_is_a_torn_tail(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    end = log.end_position
    log.append([entry(4, payload=b"never synced")])
    log.close()
    overwrite(tmp_path / FIRST, end + HEADER_SIZE + 3, b"\0")
    again = open_log(OsDisk(tmp_path))
    assert again.last_index == 3
    assert again.recovery.torn_bytes == HEADER_SIZE + len(b"never synced")
    assert again.recovery.torn_reason is not None
    assert "its bytes give" in again.recovery.torn_reason
    again.close()


def test_an_unsynced_hole_with_valid_entries_behind_it_is_a_torn_tail(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    end = log.end_position
    log.append([entry(4), entry(5), entry(6)])
    log.close()
    overwrite(tmp_path / FIRST, end, b"\0" * 20)
    again = open_log(OsDisk(tmp_path))
    assert again.last_index == 3
    again.close()


def test_without_the_mark_a_valid_entry_behind_means_damage(tmp_path: Path) -> None:
    log = filled(tmp_path, 9)
    place = log.position(5)
    behind = log.position(6)
    log.close()
    for name in ("commitlog.durable", "commitlog.durable.copy", "commitlog.base"):
        (tmp_path / name).unlink()
    (tmp_path / "commitlog.base.copy").unlink()
    overwrite(tmp_path / FIRST, place + 50, b"!")
    with pytest.raises(CorruptLogError, match=f"stands behind it at position {behind}"):
        open_log(OsDisk(tmp_path))


def test_after_a_failed_write_nothing_is_written() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log = open_log(disk)
    log.append([entry(1)])
    disk.fail_writes = True
    with pytest.raises(OSError, match="No space left"):
        log.append([entry(2)])
    disk.fail_writes = False
    for attempt in (lambda: log.append([entry(2)]), log.sync, lambda: log.truncate_from(1)):
        with pytest.raises(OSError, match="the log stopped after"):
            attempt()
    disk.crash(keep=1.0)
    assert open_log(disk).last_index == 1


def test_after_a_failed_sync_nothing_is_synced() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log = open_log(disk)
    log.append([entry(1)])
    disk.fail_syncs = True
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    disk.fail_syncs = False
    with pytest.raises(OSError, match="the log stopped after"):
        log.sync()


def without_a_sidecar(disk: ForgetfulDisk) -> tuple[SegmentLog, str]:
    """A log whose next read of its first segment has no sidecar to take the index from."""
    filling = open_log(disk, segment_size=200)
    filling.append([entry(index) for index in range(1, 11)])
    filling.sync()
    filling.close()
    log = open_log(disk, segment_size=200)
    sidecar = min(name for name in disk.list("commitlog") if name.endswith(".index"))
    disk.remove(f"commitlog/{sidecar}")
    return log, sidecar


def test_a_read_of_a_stopped_log_writes_no_sidecar() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log, sidecar = without_a_sidecar(disk)
    log.append([entry(11)])
    disk.fail_syncs = True
    with pytest.raises(OSError, match="Input/output"):
        log.sync()
    disk.fail_syncs = False
    assert log.entries(1, 2, 0) == (entry(1),), "what is stored is still read"
    assert sidecar not in disk.list("commitlog")


def test_a_sidecar_that_a_read_can_not_write_stops_the_log() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log, _ = without_a_sidecar(disk)
    disk.fail_syncs = True
    with pytest.raises(OSError, match="Input/output"):
        log.entries(1, 2, 0)
    disk.fail_syncs = False
    with pytest.raises(OSError, match="the log stopped after"):
        log.append([entry(11)])


def test_a_full_disk_leaves_a_read_without_its_sidecar() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log, _ = without_a_sidecar(disk)
    disk.fail_writes = True
    assert log.entries(1, 2, 0) == (entry(1),)
    disk.fail_writes = False
    log.append([entry(11)])
    log.sync()


class LogMachine(RuleBasedStateMachine):
    """The log is a list; a crash keeps a prefix of it that holds everything synced."""

    @initialize(seed=st.integers(0, 2**32), segment=st.sampled_from([100, 300, 5000]))
    def start(self, seed: int, segment: int) -> None:
        self.rng = random.Random(seed)
        self.disk = ForgetfulDisk(self.rng)
        self.segment = segment
        self.model: list[Entry] = []
        self.durable = 0
        self.histories: list[list[Entry]] = []  # every state since the last sync
        self.open()

    def open(self) -> None:
        self.log = SegmentLog(
            self.disk,
            "commitlog",
            segment_size_bytes_max=self.segment,
            preallocation_size_bytes=200,
            tail_size_bytes_max=150,
        )

    @rule(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=6), newer=st.booleans())
    def append(self, sizes: list[int], newer: bool) -> None:
        term = (self.model[-1].term if self.model else 1) + newer
        batch = [
            Entry(
                index=len(self.model) + 1 + number,
                term=term,
                kind=EntryKind.DATA if size else EntryKind.NOOP,
                payload=self.rng.randbytes(size),
            )
            for number, size in enumerate(sizes)
        ]
        self.log.append(batch)
        self.model = self.model + batch
        self.histories.append(self.model)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(1, len(self.model)))
        self.log.truncate_from(index)
        self.model = self.model[: index - 1]
        self.durable = min(self.durable, index - 1)
        self.histories.append(self.model)

    @rule()
    def sync(self) -> None:
        covered = self.log.sync()
        assert covered.index == len(self.model)
        assert covered.term == (self.model[-1].term if self.model else 0)
        self.durable = len(self.model)
        self.histories = [self.model]

    @rule(keep=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    def crash(self, keep: float) -> None:
        self.disk.crash(keep=keep)
        self.open()
        found = list(self.log.entries(1, self.log.last_index + 1, 1 << 30))
        assert len(found) >= self.durable, "what was synced is never dropped"
        assert found[: self.durable] == self.model[: self.durable]
        # Whole entries only, in a state the log once had since its last sync, or a prefix of one.
        assert any(found == past[: len(found)] for past in [*self.histories, self.model])
        self.model = found
        self.durable = len(found)
        self.histories = [found]

    @rule()
    def restart(self) -> None:
        self.log.sync()
        self.log.close()
        self.open()
        self.durable = len(self.model)
        self.histories = [self.model]
        assert self.log.recovery.torn_bytes == 0

    @invariant()
    def reads_like_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        log, model = self.log, self.model
        assert log.last_index == len(model)
        assert log.entries(1, len(model) + 1, 1 << 30) == tuple(model)
        position = 0
        for past in model:
            assert log.position(past.index) == position
            assert log.term(past.index) == past.term
            size = HEADER_SIZE + len(past.payload)
            assert log.read(position + HEADER_SIZE, len(past.payload)) == past.payload
            position += size
        assert log.end_position == position


LogMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestLogMachine = LogMachine.TestCase
