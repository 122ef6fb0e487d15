"""Damage of what was durable: found, never served, mended, against a dumb model of the log.

The disk rots between or within incarnations: flipped bits, zeroed, stale and misdirected blocks,
truncated, deleted and swapped files, of the segments and of whatever stands beside them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from raft.log.damage import DamagedLogError, RepairMismatchError
from raft.log.log_format import HEADER_SIZE, CorruptLogError, encode_header
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, EntryKind
from tests.raft.forgetful_disk import ForgetfulDisk

KINDS = ("flip", "zero", "truncate", "misdirect", "stale", "swap", "delete")


@dataclass
class Rig:
    """A log of random entries, all of them synced, and what it must hold."""

    seed: int
    rng: random.Random = field(init=False)
    model: list[Entry] = field(default_factory=list)
    chains: list[int] = field(default_factory=lambda: [0])
    older: dict[str, bytes] = field(default_factory=dict)
    spoilt: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.disk = ForgetfulDisk(self.rng)
        self.segment_size = self.rng.choice([300, 700, 2000])
        self.open()
        for _ in range(self.rng.randrange(3, 25)):
            self.step()
        self.log.sync()
        if self.rng.random() < 0.3:
            self.log.close()
            self.open()
        self.first = self.log.first_index
        self.configs = [
            entry.index
            for entry in self.model
            if entry.kind is EntryKind.CONFIG and entry.index >= self.first
        ]

    def open(self) -> None:
        self.log = SegmentLog(
            self.disk,
            "commitlog",
            segment_size_bytes_max=self.segment_size,
            preallocation_size_bytes=200,
            tail_size_bytes_max=150,
        )

    def step(self) -> None:
        """Append; sometimes also truncate, drop the oldest, sync, remember old bytes."""
        rng, log, model = self.rng, self.log, self.model
        term = (model[-1].term if model else 1) + (rng.random() < 0.2)
        kinds = (EntryKind.DATA, EntryKind.DATA, EntryKind.CONFIG)
        batch = [
            Entry(
                index=len(model) + 1 + number,
                term=term,
                kind=rng.choice(kinds),
                payload=rng.randbytes(rng.randrange(150)),
            )
            for number in range(rng.randrange(1, 5))
        ]
        log.append(batch)
        for entry in batch:
            position = sum(HEADER_SIZE + len(past.payload) for past in model)
            self.chains.append(encode_header(entry, position, self.chains[-1])[1])
            model.append(entry)
        if rng.random() < 0.1:
            self.older = {name: bytes(self.disk.content(name)) for name in self.names()}
            index = rng.randrange(max(1, len(model) - 6), len(model) + 1)
            if index >= log.first_index:
                log.truncate_from(index)
                del model[index - 1 :], self.chains[index:]
        if rng.random() < 0.07:
            log.drop_before(rng.randrange(log.base.position, log.end_position + 1))
        if rng.random() < 0.3:
            log.sync()

    def names(self) -> list[str]:
        found = [f"commitlog/{name}" for name in self.disk.list("commitlog")]
        return sorted(found + self.disk.list(""))

    def corrupt(self, kinds: Sequence[str]) -> bool:
        """Spoil something; False where it turned out to be no change."""
        rng = self.rng
        names = self.names()
        segments = [name for name in names if name[-1].isdecimal()]
        name = rng.choice(segments if segments and rng.random() < 0.7 else names)
        if "commitlog." in name:
            # Of a file and its copy only one: with both of them any log may look shorter.
            name = self.spoilt.setdefault(name.removesuffix(".copy"), name)
            if name not in names:
                return False
        kind = rng.choice(kinds)
        if kind == "delete":
            self.disk.remove(name)
            self.disk.sync_directory("")
            return True
        content = self.disk.content(name)
        before = bytes(content)
        if not content:
            return False
        page = rng.choice([16, 64, 256, 4096])
        start = rng.randrange(len(content)) // page * page
        size = min(page, len(content) - start)
        match kind:
            case "flip":
                content[start] ^= 1 << rng.randrange(8)
            case "zero":
                content[start : start + size] = bytes(size)
            case "truncate":
                del content[start:]
            case "misdirect":
                source = bytes(self.disk.content(rng.choice(names)))
                block = source[start : start + size]
                content[start : start + len(block)] = block
            case "stale":
                block = self.older.get(name, b"")[start : start + size]
                content[start : start + len(block)] = block
            case "swap":
                if name not in segments:
                    return False
                other = self.disk.content(rng.choice(segments))
                content[:], other[:] = bytes(other), before
        return bytes(content) != before

    def scrub(self) -> None:
        scrub = self.log.scrub()
        done = False
        while not done:
            step = scrub.step(self.rng.choice([50, 500, 10_000]))
            self.log.note_damages(step.damages)
            done = step.done

    def check(self) -> int:
        """Whatever can be read is right; how many entries can't be."""
        log, unreadable = self.log, 0
        assert log.last_index == len(self.model)
        for entry in self.model[self.first - 1 :]:
            try:
                assert log.entries(entry.index, entry.index + 1, 1 << 30) == (entry,)
                position = log.position(entry.index)
                assert log.read(position + HEADER_SIZE, len(entry.payload)) == entry.payload
                assert log.term(entry.index) == entry.term
            except DamagedLogError:
                unreadable += 1
        return unreadable

    def mend(self) -> None:
        """Give the log what it misses, a few entries at a time, sometimes the wrong ones."""
        log, rng = self.log, self.rng
        for _ in range(2000):
            if not log.damages:
                return
            damage = rng.choice(log.damages)
            low = log.wanted_index(damage)
            high = min(low + rng.randrange(1, 6), damage.last_index + 1)
            entries = self.model[low - 1 : high - 1]
            if rng.random() < 0.05:
                entries = [
                    Entry(index=e.index, term=e.term, kind=e.kind, payload=e.payload + b"!")
                    for e in entries
                ]
            try:
                log.repair(low, entries, chain_before=self.chains[low - 1])
            except RepairMismatchError:
                if rng.random() < 0.5:
                    log.forget_repairs()  # as when nobody can go on with what was begun
        pytest.fail(f"not mended: {log.damages}")


def rot_and_mend(seed: int, corruptions: int, counts: Counter[str], *, online: bool) -> None:
    rig = Rig(seed)
    kinds = KINDS[:-1] if online else KINDS  # an open file outlives its name
    if not any([rig.corrupt(kinds) for _ in range(corruptions)]):  # noqa: C419 - all of them
        return
    counts["rotten"] += 1
    if not online:
        rig.log.close()
        rig.disk.crash(keep=1.0)
        try:
            rig.open()
        except CorruptLogError:
            counts["refused"] += 1
            return
    counts["found at the start"] += bool(rig.log.damages)
    rig.scrub()
    counts["found by then"] += bool(rig.log.damages)
    counts["unreadable"] += rig.check() > 0
    rig.mend()
    assert rig.check() == 0
    assert list(rig.log.config_indexes) == rig.configs
    rig.log.close()
    rig.open()
    if online:  # what was served from memory all the time is found now
        rig.scrub()
        rig.mend()
        rig.log.close()
        rig.open()
    assert not rig.log.damages
    rig.scrub()
    assert not rig.log.damages
    assert rig.check() == 0


@pytest.mark.parametrize("online", [False, True])
def test_one_corruption_is_found_and_mended(online: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(250):
        rot_and_mend(seed, 1, counts, online=online)
    assert counts["rotten"] > 100
    assert counts["unreadable"] > 80
    assert counts["found by then"] > counts["found at the start"] > 20 or online
    assert not counts["refused"], "of one corruption the extent is always known"


def test_several_corruptions_are_found_and_mended() -> None:
    """Where even the extent of a damage is lost, the log is refused; it is never shortened."""
    counts: Counter[str] = Counter()
    for seed in range(1000, 1200):
        rot_and_mend(seed, 4, counts, online=False)
    assert counts["unreadable"] > 150
    assert counts["refused"] < 10


def filled(disk: ForgetfulDisk, count: int, segment_size: int = 500) -> SegmentLog:
    log = SegmentLog(disk, "commitlog", segment_size_bytes_max=segment_size)
    log.append([entry(index) for index in range(1, count + 1)])
    log.sync()
    return log


def entry(index: int) -> Entry:
    return Entry(index=index, term=1, kind=EntryKind.DATA, payload=b"%03d" % index * 10)


def reopened(disk: ForgetfulDisk, segment_size: int = 500) -> SegmentLog:
    disk.crash(keep=1.0)
    return SegmentLog(disk, "commitlog", segment_size_bytes_max=segment_size)


@pytest.mark.parametrize("offset", [0, 5, 10, 20, 30, 33, 38, 42, HEADER_SIZE + 2])
def test_damage_of_the_last_durable_entry_is_told_exactly(offset: int) -> None:
    disk = ForgetfulDisk(random.Random(1))
    log = filled(disk, 9, segment_size=5000)
    place, chains = log.position(9), (log.chain(8), log.chain(9))
    disk.content("commitlog/00000000000000000000")[place + offset] ^= 0x40
    log = reopened(disk, 5000)
    assert log.recovery.torn_bytes == 0
    (damage,) = log.damages
    assert (damage.first_index, damage.last_index) == (9, 9)
    assert (damage.position, damage.end_position) == (place, log.end_position)
    assert (damage.chain_before, damage.chain_after) == chains
    assert log.last_index == 9
    with pytest.raises(DamagedLogError, match=r"commitlog/0{20}: damaged at position \d+: entries"):
        log.entries(9, 10, 1000)
    log.repair(9, [entry(9)])
    assert log.entries(1, 10, 1 << 20) == tuple(entry(index) for index in range(1, 10))
    assert reopened(disk, 5000).damages == ()


def test_a_lost_last_segment_is_known_by_the_mark() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log = filled(disk, 40)
    first = log.recovery.entries + 1
    last = sorted(name for name in disk.list("commitlog") if name.isdecimal())[-1]
    disk.remove(f"commitlog/{last}")
    log = reopened(disk)
    assert log.last_index == 40
    (damage,) = log.damages
    assert damage.last_index == 40
    log.repair(damage.first_index, [entry(i) for i in range(damage.first_index, 41)])
    log.append([entry(41)])
    log.sync()
    log = reopened(disk)
    assert log.entries(first, 42, 1 << 20) == tuple(entry(index) for index in range(1, 42))


def test_what_a_reader_finds_is_kept_from_the_next_one() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log = filled(disk, 40)
    log.close()
    log = reopened(disk)
    assert log.damages == ()
    disk.content("commitlog/00000000000000000000")[HEADER_SIZE + 3] ^= 1
    assert log.read(log.position(7) + HEADER_SIZE, 30) == b"007" * 10
    with pytest.raises(DamagedLogError):
        log.read(HEADER_SIZE, 30)
    assert [damage.first_index for damage in log.damages] == [1]
    disk.content("commitlog/00000000000000000000")[HEADER_SIZE + 3] ^= 1
    with pytest.raises(DamagedLogError):
        log.read(HEADER_SIZE, 30)
    log.repair(1, [entry(1)])
    assert log.read(HEADER_SIZE, 30) == b"001" * 10


def test_entries_end_before_a_damage() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log = filled(disk, 40)
    place = log.position(5)
    log.close()
    log = reopened(disk)
    disk.content("commitlog/00000000000000000000")[place + HEADER_SIZE] ^= 1
    assert [found.index for found in log.entries(1, 20, 1 << 20)] == [1, 2, 3, 4]
    with pytest.raises(DamagedLogError):
        log.entries(5, 20, 1 << 20)
    assert log.entries(6, 20, 1 << 20)[0] == entry(6)


def test_wrong_entries_are_not_taken() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log = filled(disk, 40)
    disk.remove("commitlog/00000000000000000000")
    log = reopened(disk)
    (damage,) = log.damages
    with pytest.raises(RepairMismatchError):
        log.repair(1, [Entry(index=1, term=2, kind=EntryKind.DATA, payload=b"001" * 10)])
    with pytest.raises(ValueError, match="comes first"):
        log.repair(2, [entry(2)])
    with pytest.raises(ValueError, match="is not damaged"):
        log.repair(39, [entry(39)])
    assert log.damages == (damage,)
    log.repair(1, [entry(1), entry(2)])
    # Mended in part it is still missing: the file is renamed once it is whole.
    assert log.damages == (damage,)
    assert log.wanted_index(damage) == 3
    log = reopened(disk)
    assert log.damages == (damage,)
    log.repair(1, [entry(index) for index in range(1, 40)])
    assert log.entries(1, 3, 1 << 20) == (entry(1), entry(2))
    assert reopened(disk).damages == ()


def test_two_logs_damaged_at_different_places_mend_each_other() -> None:
    logs = []
    for spoilt in (3, 6):
        disk = ForgetfulDisk(random.Random(1))
        place = filled(disk, 9, segment_size=5000).position(spoilt)
        disk.content("commitlog/00000000000000000000")[place + 50] ^= 1
        logs.append(reopened(disk, 5000))
    for one, other in (logs, logs[::-1]):
        (damage,) = one.damages
        missing = damage.first_index
        with pytest.raises(DamagedLogError):
            one.entries(1, 2, 1000)  # before the damage: not confirmed
        copies = other.copies(missing, missing + 1, 1 << 20)
        one.repair(missing, copies, chain_before=other.chain(missing - 1))
    whole = tuple(entry(index) for index in range(1, 10))
    assert [log.entries(1, 10, 1 << 20) for log in logs] == [whole, whole]


def test_without_any_mark_a_log_is_refused() -> None:
    disk = ForgetfulDisk(random.Random(1))
    filled(disk, 9)
    disk.remove("commitlog.durable")
    assert reopened(disk).last_index == 9
    disk.remove("commitlog.durable")
    disk.remove("commitlog.durable.copy")
    with pytest.raises(CorruptLogError, match="neither copy is readable"):
        reopened(disk)
