"""Stores of the engines `async` and `sync` as tables, against lists of what was written to them."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.entry.payload import UNIT, Run, encode_header, encode_table
from broker.ha.commit_log import CommitLog
from broker.ha.framing import HEAD_OVERHEAD, encode_blank, encode_entry
from raft.log.disk import OsDisk
from tests.broker.ha.payloads import STORED_MS, payload_at, record, slot
from verify.export.master_slave_commitment import commit_indexes
from verify.export.master_slave_replica import log_tables
from verify.export.store_files import Store, master_slave_stores

GROUP = "broker-a"
FILE_SIZE = 4_000


@dataclass
class Written:
    """A replica's log as broker.ha wrote it, and as a list of (index, slot, kind, value of the
    queue offset, position) that a reader has to find."""

    run: Path
    node: str = "n0"
    rows: list[tuple[object, ...]] = field(default_factory=list)
    first: int = 0
    entry_ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = self.run / "nodes" / GROUP / self.node
        (self.store / "ha").mkdir(parents=True)
        self.disk = OsDisk(self.store)
        self.log = CommitLog(self.disk, "ha/commitlog", file_size=FILE_SIZE)

    def entry(self, sizes: Sequence[int], offsets: int = 0) -> None:
        """An entry of ours: records with bodies of these sizes, and so many commands `offset`."""

        def payload() -> bytes:
            bodies = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes)]
            made = payload_at(slot(self.log.end.position), bodies, first=self.first)
            return made if not offsets else with_commands(self.log.end.position, bodies, self.first)

        def with_commands(at: int, bodies: list[bytes], first: int) -> bytes:
            commands = [msgpack.packb(["offset", "group", "T", 0, n]) for n in range(offsets)]
            lengths = [len(record("T", 0, 0, body)) for body in bodies]

            def table(position: int) -> bytes:
                units = []
                for length in lengths:
                    units.append(UNIT.pack(position, length, 97))
                    position += length
                runs = [Run("T", 0, first, b"".join(units), None)] if bodies else []
                return encode_table(STORED_MS, runs, commands)

            place = slot(at) + 8 + len(table(0))
            pieces = [encode_header(len(table(0))), table(place)]
            for number, body in enumerate(bodies):
                pieces.append(record("T", first + number, place, body))
                place += lengths[number]
            return b"".join(pieces)

        made = payload()
        if not self.log.fits(len(made)):
            self.log.roll()
            made = payload()
        standing = self.log.append(made)
        index, place = standing.after.index, standing.after.position
        for number in reversed(range(len(sizes))):
            length = len(record("T", 0, 0, bytes(sizes[number])))
            place -= length
            self.rows.append((index, number, "message", self.first + number, place))
        head = standing.before.position
        for number in range(offsets):
            self.rows.append((index, len(sizes) + number, "offset", number, head))
        if not sizes and not offsets:
            self.rows.append((index, 0, "command", None, head))
        self.first += len(sizes)
        self.entry_ends.append(standing.after.position)

    def bare(self, size: int) -> None:
        """A record as a RocketMQ master writes it, by the way of a slave's log."""
        log = self.log
        data = record("T", self.first, log.end.position, b"r" * size)
        if len(data) + 8 > FILE_SIZE - log.end.position % FILE_SIZE:
            left = FILE_SIZE - log.end.position % FILE_SIZE
            if left < FILE_SIZE:
                log.receive(encode_blank(left) + b"\7" * (left - 8))
                assert log.take() is None
            data = record("T", self.first, log.end.position, b"r" * size)
        log.receive(data)
        standing = log.take()
        assert standing is not None
        self.rows.append((standing.after.index, 0, "message", self.first, standing.before.position))
        self.first += 1
        self.entry_ends.append(standing.after.position)

    def close(self, *, clean: bool = False) -> Store:
        self.log.sync()
        index = self.log.end.index
        self.log.close()
        self.disk.close_syncs()
        if clean:
            told = {"commit_index": index, "applied_index": index, "clean": True}
            (self.store / "checkpoint").write_text(json.dumps(told))
        return self.read()

    def read(self) -> Store:
        listed = [path.relative_to(self.run).as_posix() for path in self.run.rglob("*")]
        files = [name for name in listed if (self.run / name).is_file()]
        (store,) = (one for one in master_slave_stores(self.run, files) if one.node == self.node)
        return store

    def files(self) -> list[Path]:
        return sorted((self.store / "ha" / "commitlog").iterdir())

    @property
    def expected(self) -> list[tuple[object, ...]]:
        return sorted(self.rows, key=lambda row: (row[0], row[1]))


def rows_of(store: Store, commit_index: int = 1 << 40) -> list[dict[str, object]]:
    return [row for table in log_tables(store, commit_index) for row in table.to_pylist()]


def told(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    names = ("index", "slot", "kind", "queue_offset", "position")
    return [tuple(row[name] for name in names) for row in rows]


def flip(path: Path, offset: int, mask: int = 0xFF) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= mask
    path.write_bytes(content)


def of_a_kind(rows: list[dict[str, object]], kind: str) -> list[dict[str, object]]:
    return [row for row in rows if row["kind"] == kind]


def test_rows_are_what_was_written(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.entry([10, 20])
    written.entry([], offsets=2)
    written.entry([])
    written.bare(30)
    written.entry([5], offsets=1)
    rows = rows_of(written.close())
    assert told(rows) == written.expected
    assert {row["term"] for row in rows} == {1}
    assert len({row["chain"] for row in rows}) == 5, "a chain per entry"
    message = rows[0]
    assert (message["topic"], message["queue"], message["tag_hash"]) == ("T", 0, 97)
    assert message["stored_ms"] == STORED_MS
    (offset, *_) = of_a_kind(rows, "offset")
    assert (offset["client_group"], offset["topic"], offset["queue"]) == ("group", "T", 0)


def test_files_that_end_in_a_blank(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for number in range(40):
        written.entry([300 + 37 * number % 500])
    store = written.close()
    assert len(written.files()) > 5
    assert told(rows_of(store)) == written.expected


def test_an_entry_that_fills_its_file_but_for_the_least_blank(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.entry([1])
    overhead = HEAD_OVERHEAD + len(payload_at(slot(written.log.end.position), [b""], first=1))
    size = FILE_SIZE - written.log.end.position - overhead - 8
    payload = payload_at(slot(written.log.end.position), [bytes(size)], first=1)
    size -= len(payload) + HEAD_OVERHEAD + 8 - (FILE_SIZE - written.log.end.position)
    written.entry([size])
    assert written.log.end.position == FILE_SIZE - 8
    written.entry([3])
    assert told(rows_of(written.close())) == written.expected


@pytest.mark.parametrize("left", [0, 5, 40])
def test_a_file_whose_end_was_a_hole_is_read_whole(tmp_path: Path, left: int) -> None:
    """A run's files lose the zeros of their preallocation."""
    written = Written(tmp_path)
    for size in (10, 20, 30):
        written.entry([size])
    end = written.log.end.position
    store = written.close()
    os.truncate(written.files()[-1], end + left)
    assert told(rows_of(store)) == written.expected


def test_a_cut_tail_is_told_at_its_place(tmp_path: Path) -> None:
    """What a kill left of an entry: its head is whole, of the last record some bytes are zeros."""
    written = Written(tmp_path)
    for _ in range(3):
        written.entry([100])
    last = written.files()[-1]
    store = written.close()
    content = bytearray(last.read_bytes())
    content[written.entry_ends[-1] - 50 : written.entry_ends[-1]] = bytes(50)
    last.write_bytes(content)
    rows = rows_of(store, commit_index=2)
    assert told(rows)[:2] == written.expected[:2]
    (damaged, lost) = of_a_kind(rows, "damaged")
    assert (damaged["index"], damaged["committed"]) == (3, False)
    assert "chain with the entry" in str(damaged["damage"])
    assert (lost["index"], lost["committed"]) == (3, True)
    assert "durable up to entry 3" in str(lost["damage"])


def test_an_unsynced_cut_tail_is_no_loss(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.entry([100])
    written.log.sync()
    written.entry([100])
    last = written.files()[-1]
    content = bytearray(last.read_bytes())
    content[written.entry_ends[-1] - 50 : written.entry_ends[-1]] = bytes(50)
    last.write_bytes(content)
    rows = rows_of(written.read(), commit_index=1)
    assert [(row["kind"], row["committed"]) for row in rows] == [
        ("message", True), ("damaged", False),
    ]  # fmt: skip
    written.log.close()


def test_a_clean_stop_that_lost_its_tail_is_told(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for _ in range(3):
        written.entry([100])
    store = written.close(clean=True)
    last = written.files()[-1]
    content = last.read_bytes()
    last.write_bytes(content[: written.entry_ends[1]] + bytes(FILE_SIZE - written.entry_ends[1]))
    rows = rows_of(store)
    assert [row["kind"] for row in rows] == ["message", "message", "damaged"]
    assert "stopped cleanly with entry 3 applied" in str(rows[-1]["damage"])


def test_a_flipped_byte_costs_its_entry_alone(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for _ in range(4):
        written.entry([100, 100])
    store = written.close()
    flip(written.files()[0], written.entry_ends[0] + 300)
    rows = rows_of(store)
    assert told(rows)[:2] == written.expected[:2]
    assert [(row["index"], row["kind"]) for row in rows[2:3]] == [(2, "damaged")]
    assert told(rows)[3:] == written.expected[4:]


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for _ in range(40):
        written.entry([500])
    written.close()
    written.files()[1].unlink()
    rows = rows_of(written.read())
    (damaged,) = of_a_kind(rows, "damaged")
    assert "the next begins at" in str(damaged["damage"])
    assert damaged["index"] == max(int(str(r["index"])) for r in rows[: rows.index(damaged)]) + 1
    behind = [row for row in told(rows) if int(str(row[0])) > int(str(damaged["index"]))]
    assert behind == [row for row in written.expected if row in behind]
    assert behind[-1] == written.expected[-1]


def test_a_log_that_begins_later(tmp_path: Path) -> None:
    written = Written(tmp_path)
    for _ in range(40):
        written.entry([500])
    kept = written.files()[0].read_bytes()
    begin = written.log.drop_before(3 * FILE_SIZE)
    assert begin == 3 * FILE_SIZE
    store = written.close()
    behind = [row for row in written.expected if int(str(row[4])) >= begin]
    assert told(rows_of(store)) == behind
    (written.store / "ha" / "commitlog" / f"{0:020d}").write_bytes(kept)
    assert told(rows_of(written.read())) == behind, "what is below the beginning is left over"


def test_a_store_without_a_log_has_no_rows(tmp_path: Path) -> None:
    written = Written(tmp_path)
    assert rows_of(written.close()) == []


@pytest.mark.parametrize("at", range(91))
def test_every_byte_of_a_head_is_looked_at(tmp_path: Path, at: int) -> None:
    """Whatever is wrong in a head is told: also what no broker reads."""
    written = Written(tmp_path)
    written.entry([20])
    written.entry([20])
    store = written.close()
    flip(written.files()[0], at, 0x41)
    rows = rows_of(store)
    assert of_a_kind(rows, "damaged"), rows
    assert not [row for row in told(rows) if row not in written.expected and row[2] != "damaged"]


STEPS = st.one_of(
    st.tuples(st.just("entry"), st.lists(st.integers(0, 700), max_size=4), st.integers(0, 3)),
    st.tuples(st.just("bare"), st.integers(0, 900), st.just(0)),
)


def write(run: Path, steps: Sequence[tuple[str, object, int]]) -> Written:
    written = Written(run)
    for name, what, offsets in steps:
        if name == "entry":
            assert isinstance(what, list)
            written.entry(what, offsets)
        else:
            assert isinstance(what, int)
            written.bare(what)
    return written


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(STEPS, max_size=25))
def test_any_log_is_read_as_it_was_written(steps: list[tuple[str, object, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written = write(Path(folder), steps)
        assert told(rows_of(written.close())) == written.expected


@settings(max_examples=120, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=20), st.integers(0, 1 << 30))
def test_no_flipped_byte_makes_up_a_row(steps: list[tuple[str, object, int]], seed: int) -> None:
    """Rows are those that were written, or damage; what stands before the damage is whole."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        written = write(Path(folder), steps)
        store = written.close()
        if not written.entry_ends:
            return
        at = rng.randrange(written.entry_ends[-1])
        flip(written.files()[at // FILE_SIZE], at % FILE_SIZE, rng.randrange(1, 256))
        rows = rows_of(store)
        damaged = of_a_kind(rows, "damaged")
        found = [row for row in told(rows) if row[2] != "damaged"]
        last = sum(end <= at for end in written.entry_ends)
        before = [row for row in written.expected if int(str(row[0])) <= last]
        assert found[: len(before)] == before
        if not all(name == "entry" for name, _, _ in steps):
            return  # nothing covers the fields of a bare record
        assert damaged or found == written.expected, "the rest of a BLANK may be anything"
        assert not [row for row in found if row not in written.expected]


def two(root: Path, common: int, *, ours: int, theirs: int) -> list[Store]:
    """Two logs that are the same for `common` entries, and differ in what follows."""
    both = [Written(root, node) for node in ("n0", "n1")]
    for written, more, size in zip(both, (ours, theirs), (50, 60), strict=True):
        for _ in range(common):
            written.entry([40])
        for _ in range(more):
            written.entry([size])
    return [written.close() for written in both]


@pytest.mark.parametrize(
    ("common", "ours", "theirs", "master", "committed"),
    [
        (5, 3, 0, "n0", [8, 5]),  # a slave that is behind
        (5, 3, 0, "n1", [5, 5]),  # the slave took over: what it had not is gone
        (5, 3, 4, "n1", [5, 9]),  # and took others since
        (5, 3, 4, None, [5, 9]),  # nothing tells the master: the longest log
        (5, 4, 4, "n9", [9, 5]),  # a master without a store: likewise
        (0, 3, 4, "n1", [0, 4]),
        (0, 0, 4, "n0", [0, 0]),  # a master that lost its disk
    ],
)
def test_what_is_committed_is_what_the_master_has(
    tmp_path: Path, common: int, ours: int, theirs: int, master: str | None, committed: list[int]
) -> None:
    stores = two(tmp_path, common, ours=ours, theirs=theirs)
    assert commit_indexes(stores, {GROUP: master} if master else {}) == committed
    for store, index in zip(stores, committed, strict=True):
        rows = rows_of(store, index)
        assert [row["committed"] for row in rows] == [
            int(str(row["index"])) <= index for row in rows
        ]


def test_bytes_of_an_entry_that_no_log_has(tmp_path: Path) -> None:
    """An entry of another place of the log is none here, though its own bytes are sound."""
    written = Written(tmp_path)
    written.entry([40])
    end = written.log.end
    moved = b"".join(encode_entry(payload_at(slot(end.position), [b"x"]), end)[0])
    written.entry([40])
    store = written.close()
    path = written.files()[0]
    content = bytearray(path.read_bytes())
    place = written.entry_ends[1]
    content[place : place + len(moved)] = moved
    path.write_bytes(content)
    rows = rows_of(store)
    assert told(rows)[:2] == written.expected
    assert [row["kind"] for row in rows[2:]] == ["damaged"]
    assert f"position {end.position}" in str(rows[2]["damage"])
