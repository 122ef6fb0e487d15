"""A random life of one replica's store against a dumb model: what the log has, queues show.

Entries are applied; snapshots taken; the log loses its beginning; the process is killed, or the
machine, which takes what was not synced; files are lost or rot; a snapshot is installed over what
is there. After each start every queue shows exactly the units of the records that the log has.
ConsumeQueue files hold 8 units here, so that there are many.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.entry.payload import UNIT, Run, encode_header, encode_table
from broker.entry.topics import system_topics
from broker.queues import consume_queue, derived_files
from broker.queues.consume_queues import ConsumeQueues
from broker.queues.state_machine import BrokerStateMachine
from broker.state.state import BrokerState, StateLimits
from raft.messages import EntryKind
from raft.replicated_log import CommittedEntry

QUEUES = 3
HEADER_SIZE = 44
STEPS = ["apply"] * 6 + [
    *("snapshot", "snapshot", "retain", "kill", "power", "lose a file", "rot a unit", "install")
]


class Life:
    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.directory = directory
        self.rng = rng
        self.entries: list[CommittedEntry] = []
        self.units: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
        self.end = 0
        self.begin = 0  # of the log
        self.first = 0  # entries before it are gone
        self.snapshot: tuple[int, list[bytes]] | None = None
        self.synced: dict[Path, bytes] = {}  # as the machine's disk has them
        self.open()

    def open(self) -> None:
        self.queues = ConsumeQueues(self.directory / "consumequeue", files_max=4)
        state = BrokerState(StateLimits(), system_topics("C", "g"))
        self.machine = BrokerStateMachine(
            state,
            self.queues,
            on_arrival=lambda run: None,
            on_role=lambda status: None,
            on_topics=lambda: None,
        )

    def write(self) -> CommittedEntry:
        """The next entry of the log."""
        runs, at = [], self.end + HEADER_SIZE + 500
        for queue_id in self.rng.sample(range(QUEUES), self.rng.randint(1, QUEUES)):
            first = len(self.units[queue_id])
            for _ in range(self.rng.randint(1, 5)):
                self.units[queue_id].append(UNIT.pack(at, 100, self.rng.randint(0, 99)))
                at += 100
            runs.append(Run("T", queue_id, first, b"".join(self.units[queue_id][first:]), None))
        table = encode_table(1_000 + len(self.entries), runs, [])
        entry = CommittedEntry(
            index=len(self.entries) + 1,
            term=1,
            kind=EntryKind.DATA,
            position=self.end + HEADER_SIZE,
            payload=encode_header(len(table)) + table,
            chain=0,
        )
        self.entries.append(entry)
        self.end = at
        return entry

    def step(self, name: str) -> None:
        match name:
            case "apply":
                self.machine.apply([self.write() for _ in range(self.rng.randint(1, 3))])
            case "snapshot":
                self.take_snapshot()
            case "retain" if self.snapshot is not None:
                self.first = self.rng.randint(self.first, self.snapshot[0])
                self.begin = self.position(self.first)
                self.machine.trim(self.begin)
            case "kill":
                self.start()
            case "power":
                self.lose_what_was_not_synced()
                self.start()
            case "lose a file" | "rot a unit":
                self.damage(name)
                self.start()
            case "install" if self.snapshot is not None:
                self.install()

    def take_snapshot(self) -> None:
        image = self.machine.capture()
        self.machine.sync_derived()
        self.snapshot = len(self.entries), list(image.encode())
        files = (self.directory / "consumequeue").glob("*/*/*")
        self.synced = {path: path.read_bytes() for path in files}

    def position(self, count: int) -> int:
        """Where entry `count`, from 0, begins."""
        return self.entries[count].position - HEADER_SIZE if count < len(self.entries) else self.end

    def start(self) -> None:
        """What the node does over the files that it finds."""
        self.queues.close()
        self.open()
        self.restore(self.machine)

    def restore(self, machine: BrokerStateMachine) -> None:
        index = 0
        if self.snapshot is not None:
            index, chunks = self.snapshot
            machine.prepare_restore(index, chunks)()
            machine.trim(self.begin)
            if machine.needs_indexing:
                for at in range(self.first, index, 2):
                    machine.index_only(self.entries[at : min(at + 2, index)])
        machine.apply(self.entries[index:])

    def install(self) -> None:
        """A node that fell behind, with anything in its store, gets the snapshot."""
        stale = self.rng.randint(0, self.snapshot[0])
        self.queues.close()
        shutil.rmtree(self.directory / "consumequeue", ignore_errors=True)
        (self.directory / "consumequeue.begins").unlink(missing_ok=True)
        self.open()
        self.machine.apply(self.entries[:stale])
        self.restore(self.machine)

    def lose_what_was_not_synced(self) -> None:
        """A file may be gone, as it was synced, or as it is now, page by page."""
        self.queues.close()
        for path in list((self.directory / "consumequeue").glob("*/*/*")):
            before, now = self.synced.get(path), path.read_bytes()
            if path.name.endswith(".crc"):
                path.write_bytes(self.rng.choice([now, before or b""]))
            elif before is None:
                self.rng.choice([path.unlink, lambda: None])()
            else:
                cut = self.rng.randint(0, len(now))
                path.write_bytes(before[:cut] + now[cut:])

    def damage(self, name: str) -> None:
        """Only what a check covers: the rest is found by the reader."""
        files = [path for path in self.synced if path.exists() and path.name.isdecimal()]
        if not files:
            return
        path = self.rng.choice(sorted(files))
        if name == "lose a file":
            path.unlink()
            return
        check = path.with_name(f"{path.name}.crc")
        covered = int.from_bytes(check.read_bytes()[4:8], "big") if check.exists() else 0
        if not covered:
            return  # built again since: checked with the next snapshot
        data = bytearray(path.read_bytes())
        data[self.rng.randrange(covered * UNIT.size)] ^= 1 << self.rng.randrange(8)
        path.write_bytes(data)

    def check(self) -> None:
        assert not self.machine.needs_indexing
        for queue_id, units in self.units.items():
            queue = self.queues.get("T", queue_id)
            gone = sum(UNIT.unpack(unit)[0] < self.begin for unit in units)
            assert (queue.min_offset, queue.next_offset) == (gone, len(units))
            for offset in range(gone, len(units)):
                assert queue.read(offset, 1) == units[offset]


@settings(deadline=None, max_examples=120)
@given(st.lists(st.sampled_from(STEPS), max_size=25), st.integers(0, 1 << 32))
def test_queues_show_what_the_log_has_whatever_happens(tmp_path_factory, steps, seed):
    with (
        mock.patch.object(derived_files, "FILE_UNITS", 8),
        mock.patch.object(derived_files, "FILE_SIZE", 8 * UNIT.size),
        mock.patch.object(consume_queue, "FILE_UNITS", 8),
        mock.patch.object(consume_queue, "FILE_SIZE", 8 * UNIT.size),
    ):
        life = Life(tmp_path_factory.mktemp("walk"), random.Random(seed))
        for name in steps:
            life.step(name)
            life.check()
        life.queues.close()
