"""A machine that runs a broker of a master-slave engine, and notes in the book what its log does.

Place in the data path: `cluster` makes one per node. The engine is watched from outside: what is
proposed and answered, what a start has found, when the log is cut. The broker knows nothing of it.

Invariant: what is read of the log for the book counts as no operation of the disk, and never fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from broker.config.config import BrokerConfig
from broker.entry.payload import UNIT, decode_payload
from broker.ha.commit_log import CommitLog, Standing
from broker.ha.engine import HaLog
from broker.process.server import Broker
from chaos.sim.groups.broker_machine import BrokerMachine, MachineDisk, Witness
from chaos.sim.groups.machine import Site
from chaos.sim.groups.models.stored import value_of
from chaos.sim.ha.log_book import Answer, Entry, LogBook, Message, Opened
from chaos.sim.ha.slave_connections import Connected, SlaveConnections
from chaos.sim.ha.turn_mix import TurnMix
from chaos.sim.machine.violation import Violation
from raft.log.durable_mark import DurableMark, Mark
from raft.log.log_format import CorruptLogError
from raft.messages import Index, LogBase, NodeId
from raft.replicated_log import LogFullError, NotLeaderError, ProposalResult, Slot
from raft.storage import write_fully
from remoting.records.message import decode_record

__all__ = ["HaMachine"]

_FOLDER: Final = "ha/commitlog"
_CHUNK_SIZE: Final = 1 << 16
_SNAPSHOTS: Final = "ha/snapshots/"
_SNAPSHOT_END: Final = slice(24, 32)


class HaDisk(MachineDisk):
    """Knows whether a fsync has failed since its process began: what it was to write is lost."""

    sync_has_failed = False
    _is_of_operator = False

    def sync(self, inode: Any, upto: int | None = None) -> None:
        try:
            super().sync(inode, upto)
        except OSError:
            self.sync_has_failed = True
            raise

    @contextlib.contextmanager
    def of_operator(self) -> Iterator[None]:
        """Let a person, not a process of the machine, use the disk within the block."""
        self._is_of_operator = True
        try:
            yield
        finally:
            self._is_of_operator = False

    def _before(self, operation: str) -> None:
        if not self._is_of_operator:
            super()._before(operation)

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """Neither fail nor crash within the block."""
        fault, fuse, self.fault, self.fuse = self.fault, self.fuse, None, 0
        try:
            yield
        finally:
            self.fault, self.fuse = fault, fuse


class HaMachine(BrokerMachine):
    disk_class = HaDisk
    disk: HaDisk

    def __init__(
        self,
        site: Site,
        config: BrokerConfig,
        witness: Witness,
        book: LogBook,
        slaves: SlaveConnections,
        *,
        received: Callable[[NodeId], int],
        short_write_rate: float,
        garbage_rate: float,
        sync_us: tuple[int, int],
        turn_mix_rate: float = 0.0,
    ) -> None:
        """`received` returns the position behind the bytes that a node's log has."""
        super().__init__(
            site,
            config,
            witness,
            short_write_rate=short_write_rate,
            garbage_rate=garbage_rate,
            sync_us=sync_us,
            apply_us_max=0,
        )
        self._book = book
        self._slaves = slaves
        self._received_by = received
        self._opened_log: CommitLog | None = None  # of this life
        self._turn_mix_rate = turn_mix_rate
        self._mix: TurnMix | None = None  # of this life
        self._resumed_us = 0
        self._rotten: tuple[str, bytes] | None = None  # the path of a damaged file, and what it was
        self.mixes = True  # whether entries of others stand beside the broker's own

    # --- the log, from outside -----------------------------------------------------------------

    @property
    def end(self) -> LogBase | None:
        """The place behind the log's last entry; None before it is open."""
        return None if self._opened_log is None else self._opened_log.end

    @property
    def received_position(self) -> int:
        """The position behind the bytes of the log, or of an entry that has come in part."""
        return 0 if self._opened_log is None else self._opened_log.raw_end

    @property
    def is_linked(self) -> bool:
        """Whether this slave, as it says itself, follows its master at its end."""
        status = self.status
        return status is not None and status.leader_id is not None

    def is_on_disk(self, end: int) -> bool:
        """Return whether the log up to the position `end` survives any power failure."""
        size_max = self.config.segment_size_bytes_max
        for path in self.disk.paths():
            folder, _, name = path.rpartition("/")
            if folder == _FOLDER and int(name) < end:
                size = min(size_max, end - int(name))
                if not self.disk.is_durable(path, size):
                    return False
        return True

    def _behind(self, position: int) -> list[NodeId]:
        """Return the slaves that follow this node and lack something before `position`."""
        assert self.process is not None
        followers = self._slaves.followers(self.process.loop)
        return [slave for slave in followers if self._received_by(slave) < position]

    def _snapshots(self) -> list[int]:
        """Return where those snapshots end that a start finds after any power failure, and the log
        up to there (docs/FORMATS.md section 14)."""
        ends = []
        for path in self.disk.paths():
            if path.startswith(_SNAPSHOTS) and path.endswith(".snapshot"):
                content = self.disk.content(path)
                end = int.from_bytes(content[_SNAPSHOT_END], "big")
                if self.disk.is_durable(path, len(content)) and self.is_on_disk(end):
                    ends.append(end)
        return ends

    def content(self, begin: int) -> bytes:
        """Return all bytes of the log from the position `begin` on, as its files have them."""
        log, found = self._opened_log, []
        assert log is not None
        with self.disk.unwatched():
            while chunk := log.read_chunk(begin, _CHUNK_SIZE):
                found.append(chunk)
                begin += len(chunk)
        return b"".join(found)

    @property
    def begin(self) -> int:
        """The position where the log begins."""
        assert self._opened_log is not None
        return self._opened_log.begin.position

    async def _run_once(self, broker: Broker) -> None:
        log = broker.log
        assert isinstance(log, HaLog)
        start, propose, read_index = log.start, log.propose, log.read_index

        async def watched_start() -> None:
            self._opened_log = None
            with self._judged():
                self._book.on_starting(self.name)
            await start()
            self._note_opened(log)

        self._mix = TurnMix(
            broker.replica.state,
            self.site.generator(f"turns/{self.name}/{self.incarnation}"),
            rate=self._turn_mix_rate,
            life=f"{self.name}.{self.incarnation}",
        )

        def watched_propose(fill: Callable[[Slot], bytes]) -> asyncio.Future[ProposalResult]:
            return self._proposed(propose, fill)

        async def watched_read_index() -> Index:
            index = await read_index()
            with self._judged():
                self._book.on_read_point(self.name, follows=self.is_linked)
            return index

        log.read_index = watched_read_index  # type: ignore[method-assign]
        log.start = watched_start  # type: ignore[method-assign]
        log.propose = watched_propose  # type: ignore[method-assign]
        await super()._run_once(broker)

    @contextlib.contextmanager
    def _judged(self) -> Iterator[None]:
        """Let the seed end by a violation, not the process."""
        try:
            yield
        except Violation as violation:
            self.site.failures.append(violation)

    def _note_opened(self, engine: HaLog) -> None:
        assert engine._store is not None
        if self._rotten is not None:
            with self._judged():
                raise Violation(
                    "H1", f"{self.name} opens its log, and {self._rotten[0]} is damaged"
                )
        self._opened_log = log = engine._store.log
        truncate, drop_before = log.truncate, log.drop_before

        def watched_truncate(place: LogBase) -> None:
            if place.position < log.end.position:
                with self._judged():
                    self._book.on_cut(self.name, place.index, first=log.begin.index + 1)
            truncate(place)

        def watched_drop_before(position: int, files_max: int | None = None) -> int:
            before, begin = log.begin.position, drop_before(position, files_max)
            if begin > before:
                with self._judged():
                    self._book.on_shortened(self.name, begin, self._snapshots())
                    if not self.disk_is_full:  # which forces it
                        self._book.on_shortened_for(self.name, begin, self._behind(begin))
            return begin

        log.truncate = watched_truncate  # type: ignore[method-assign]
        log.drop_before = watched_drop_before  # type: ignore[method-assign]
        with self._judged(), self.disk.unwatched():
            standings = list(log.entries_behind(log.begin))
            found = Opened(first=log.begin.index + 1, chains=[one.after.chain for one in standings])
            self._book.on_opened(self.name, found, [_entry_of(one) for one in standings[-64:]])
        self.disk.sync_has_failed = False

    def _proposed(
        self,
        propose: Callable[[Callable[[Slot], bytes]], asyncio.Future[ProposalResult]],
        fill: Callable[[Slot], bytes],
    ) -> asyncio.Future[ProposalResult]:
        """Propose what the broker does, and now and then others beside it in the same turn."""
        future, payload = self._propose_one(propose, fill)
        mix = self._mix
        if payload and mix is not None and self.mixes:
            for count in mix.draw(decode_payload(payload).store_timestamp_ms):
                try:
                    _, beside = self._propose_one(propose, mix.fill(count))
                except (LogFullError, NotLeaderError):
                    break  # the broker's own has failed already, or its next will
                if not beside:
                    break
                mix.stored(count)
                self.counts["messages_beside" if count else "commands_beside"] += 1
        return future

    def _propose_one(
        self,
        propose: Callable[[Callable[[Slot], bytes]], asyncio.Future[ProposalResult]],
        fill: Callable[[Slot], bytes],
    ) -> tuple[asyncio.Future[ProposalResult], bytes]:
        """Return the answer to come, and the payload; that is empty where its write has failed."""
        payload = b""

        def recorded_fill(slot: Slot) -> bytes:
            nonlocal payload
            payload = fill(slot)
            return payload

        future = propose(recorded_fill)
        log = self._opened_log
        if future.done() or log is None:
            return future, b""
        begun_us = self.site.scheduler.now_us
        assert self.process is not None
        connected = self._slaves.poll(self.process.loop)
        after = log.end
        with self._judged():
            entry = self._book.on_appended(
                after.index,
                after.chain,
                after.position,
                _messages(payload, after.position - len(payload)),
            )
            future.add_done_callback(lambda done: self._answered(entry, begun_us, connected, done))
        return future, payload

    def _answered(
        self,
        entry: Entry,
        begun_us: int,
        connected: Connected,
        future: asyncio.Future[ProposalResult],
    ) -> None:
        config, clock = self.config, self.clock
        now_us = self.site.scheduler.now_us
        local_s = clock.lasted_s(now_us - begun_us)
        with self._judged():
            self._book.on_answered(
                entry,
                Answer(
                    status=future.result().status,
                    waited_ms=round(local_s * 1000),
                    was_paused=begun_us <= self._resumed_us,
                    disk_timeout_ms=config.sync_flush_timeout_ms,
                    slave_timeout_ms=config.slave_timeout_ms,
                    lateness_ms=1 + self.site.timer_lateness_us_max // 1000,
                    is_on_disk=self.is_on_disk(entry.end),
                    slaves_at_most=connected.possible_count,
                    slaves_at_least=self._slaves.stayed_count(connected),
                ),
            )

    def resume(self) -> None:
        self._resumed_us = self.site.scheduler.now_us
        super().resume()

    # --- its disk ------------------------------------------------------------------------------

    def wipe(self) -> None:
        """Lose the disk of this dead node, with what is derived from its log."""
        assert not self.alive
        shutil.rmtree(self.config.store, ignore_errors=True)
        self._rotten = None
        self.new_disk()
        self._book.on_wiped(self.name)

    def set_master(self, master: NodeId) -> None:
        """Configure this dead node for a group with that master."""
        assert not self.alive
        self.config = replace(self.config, master=master)

    def take_copy_of(self, master: HaMachine) -> None:
        """Replace the store of this dead slave by a copy of the dead master's folder `ha`."""
        assert not master.alive
        self.wipe()
        disk = self.disk
        with disk.of_operator():
            for path in master.disk.paths():
                folder = path.rpartition("/")[0]
                if path.startswith("ha/"):
                    disk.make_directory(folder)
                    file = disk.open(path, create=True)
                    write_fully(file, master.disk.content(path), 0)
                    file.sync()
                    disk.sync_directory(folder)
            disk.sync_directory("ha")
            disk.sync_directory("")

    def rot(self, rng: random.Random) -> str:
        """Damage one byte of this dead node's log, in the last file, below the durable mark; say
        which, or that there was none."""
        assert not self.alive
        with self.disk.of_operator(), self.disk.unwatched():
            mark = DurableMark(self.disk, f"{_FOLDER}.durable").peek()
        end = mark.cut.position if isinstance(mark, Mark) else 0
        begin = end - end % self.config.segment_size_bytes_max
        path = f"{_FOLDER}/{begin:020d}"
        if self._rotten is not None or end == begin or path not in self.disk.paths():
            return "nowhere"
        content = self.disk.content(path)
        at = rng.randrange(end - begin)
        spoilt = bytearray(content)
        spoilt[at] ^= 1 << rng.randrange(8)
        self._rotten = path, content
        self.disk.spoil(path, bytes(spoilt))
        self.counts["logs_damaged"] += 1
        return f"{path} at {at} of {end - begin}"

    def on_exit(self, error: BaseException | None) -> None:
        if self._rotten is None or not isinstance(error, CorruptLogError):
            super().on_exit(error)
            return
        self.counts["damaged_logs_refused"] += 1
        self.disk.spoil(*self._rotten)
        self._rotten = None
        super().on_exit(None)

    # --- death ---------------------------------------------------------------------------------

    def die(self, *, power: bool) -> None:
        if self.alive:
            if self._opened_log is not None:
                self._book.on_claimed(self.name, self._opened_log.durable.index)
                self._opened_log = None
            if power or self.disk.sync_has_failed:
                self._book.on_disk_failed(self.name)
        super().die(power=power)


def _entry_of(standing: Standing) -> Entry:
    after, payload = standing.after, standing.payload
    return Entry(
        index=after.index,
        chain=after.chain,
        end=after.position,
        messages=_messages(payload, after.position - len(payload)),
    )


def _messages(payload: bytes, begin: int) -> tuple[Message, ...]:
    """Return the messages of a payload that stands at `begin`."""
    found = []
    for run in decode_payload(payload).runs:
        for number, (position, size, _) in enumerate(UNIT.iter_unpack(run.units)):
            record = decode_record(payload[position - begin : position - begin + size])
            found.append(
                Message(
                    topic=run.topic,
                    queue_id=run.queue_id,
                    queue_offset=run.first_queue_offset + number,
                    position=position,
                    value=value_of(record.body),
                )
            )
    return tuple(found)
