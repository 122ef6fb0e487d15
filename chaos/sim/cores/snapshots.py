"""Snapshots of a simulated node: taken, retained, sent, received, restored; the log they replace.

Place in the data path: `SimNode` reports what it applied and what the core wants; the product's own
`SnapshotFiles`, `InstallSender` and `InstallReceiver` work on the node's simulated disk, each step
an action of its own, so that the node may die between any two.

The replicated state is a checksum over all that was applied, beside padding, so that a snapshot
takes several pieces. Invariant: what is restored at an index is the state that applying every entry
up to there gives; the log keeps everything behind the older of two snapshots.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from chaos.sim.cores.invariants import Invariants
from chaos.sim.machine.disk import SimDisk
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.violation import Violation
from chaos.sim.seed.core_options import SimOptions
from raft.core.core import Core
from raft.events import ChunkStored, InstallChunk, SnapshotStored
from raft.log.segment_files import NO_ROOM
from raft.log.segment_log import SegmentLog
from raft.membership import Configuration, decode_membership, encode_membership
from raft.messages import Entry, Index, InstallSnapshot, LogBase, Message, NodeId, Term
from raft.snapshots.install import InstallReceiver, InstallSender
from raft.snapshots.snapshot import SnapshotFiles, SnapshotHeader
from raft.store.restore import restore_newest

__all__ = ["NodeSnapshots", "Owner"]

_STATE_SIZE = 4
_SNAPSHOT_SIZE_MAX = 1 << 20
_RETAINED = 2
_THREAD_US_MAX = 2_000


class Owner(Protocol):
    """The node whose snapshots these are."""

    name: NodeId
    disk: SimDisk

    @property
    def core(self) -> Core: ...

    @property
    def applied_index(self) -> Index: ...

    @property
    def log(self) -> SegmentLog: ...

    @property
    def term(self) -> Term: ...

    def now_ms(self) -> int: ...

    def when_awake(self, action: Callable[[], None]) -> None: ...

    def guard(self, action: Callable[[], None]) -> bool: ...

    def send(self, message: Message) -> None: ...

    def step_stored(self, event: ChunkStored | SnapshotStored) -> None: ...


class NodeSnapshots:
    """The snapshots of one incarnation; idle once `stopped` is set (the node is dead)."""

    def __init__(
        self,
        owner: Owner,
        files: SnapshotFiles,
        *,
        options: SimOptions,
        scheduler: Scheduler,
        invariants: Invariants,
        rng: random.Random,
        counts: dict[str, int],
    ) -> None:
        self._owner = owner
        self._options = options
        self._scheduler = scheduler
        self._invariants = invariants
        self._random = rng
        self._counts = counts
        self.stopped = False
        self._files = files
        self._sender = InstallSender(
            owner.name,
            self._files,
            lambda: owner.log.base,
            chunk_size_bytes=options.install_chunk_size_bytes,
        )
        self._receiver = InstallReceiver(self._files, size_bytes_max=_SNAPSHOT_SIZE_MAX)
        self.index: Index = 0  # index of the newest one
        self.configuration: Configuration | None = None  # the configuration in it
        self.state = 0
        self._busy = False

    # --- at the start --------------------------------------------------------------------------

    def restore(self, *, commit_index: Index) -> Index:
        """Restore the newest snapshot, as the product does; return the log's commit index."""
        log = self._owner.log
        restored = restore_newest(log, self._files, self, commit_index=commit_index)
        indexes = self._files.indexes()
        newest = restored.snapshots[-1].index if restored.snapshots else 0
        # No crash leaves an incomplete file under its final name.
        if indexes and indexes[-1] > max(newest, log.base.index):
            raise Violation("snapshot", f"{self._owner.name}: {indexes[-1]} is not whole")
        if restored.snapshots:
            self._counts["states_restored"] += 1
            self.configuration = restored.configuration
            self._invariants.on_restore(self._owner.name, restored.snapshots[-1], self.state)
        return min(restored.commit_index, log.last_index)

    needs_indexing = False

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]:
        return partial(self._take_over, index, b"".join(chunks))

    def trim(self, position: int) -> None:
        """Do nothing: no files are derived from the log."""

    def _take_over(self, index: Index, data: bytes) -> None:
        self.index = index
        self.state = int.from_bytes(data[:_STATE_SIZE], "big")

    def install(self, index: Index) -> None:
        """Replace state and configuration by those of the stored snapshot at `index`.

        Call it after the log was reset to begin behind `index`. Raises Violation where the state is
        not the one that was committed there.
        """
        header = self._files.verified(index)
        self._take_over(index, b"".join(self._files.chunks(index)))
        self.configuration = Configuration(
            index=header.config_index, membership=decode_membership(header.membership)
        )
        self._invariants.on_restore(self._owner.name, header.last, self.state)

    # --- taking --------------------------------------------------------------------------------

    def applied(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.state = zlib.crc32(entry.payload, self.state)
        every = self._options.snapshot_every
        if every and entries[-1].index >= self.index + every and not self._busy:
            self._take(entries[-1].index)

    def write_last(self) -> None:
        """Write a last snapshot at a clean stop."""
        index = self._owner.applied_index
        captured = self._capture(index) if index > self.index else None
        if captured is not None and self._options.snapshot_every:
            self._write(*captured)

    def _take(self, index: Index) -> None:
        captured = self._capture(index)
        if captured is not None:
            self._busy = True
            self._later(partial(self._write, *captured))

    def _capture(
        self, index: Index
    ) -> tuple[SnapshotHeader, Iterator[bytes], Configuration] | None:
        owner = self._owner
        log = owner.log
        end = log.position(index + 1) if index < log.last_index else log.end_position
        configuration = owner.core.configuration_at(index)
        if not configuration.membership.voters:
            return None  # it joined, and no entry so far names the group's members
        header = SnapshotHeader(
            last=LogBase(index=index, term=log.term(index), position=end, chain=log.chain(index)),
            config_index=configuration.index,
            membership=encode_membership(configuration.membership),
        )
        return header, self._chunks(self.state), configuration

    def _chunks(self, state: int) -> Iterator[bytes]:
        padding = self._random.randbytes(int(self._random.random() * 600))
        return iter((state.to_bytes(_STATE_SIZE, "big"), padding or b"-"))

    def _write(
        self, header: SnapshotHeader, chunks: Iterator[bytes], configuration: Configuration
    ) -> None:
        self._busy = False
        index = header.last.index
        if index <= self.index:
            return  # a newer one was installed meanwhile
        try:
            self._files.write(header, chunks)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._files.remove_unfinished(index)
            return  # keep the old one until there is room again
        self._counts["snapshots_taken"] += 1
        self.index = index
        self.configuration = configuration
        self._later(self._retain)

    def _retain(self) -> None:
        """Keep two snapshots and the log behind the older."""
        retained = self._files.indexes()[-_RETAINED:]
        self._files.retain(retained)
        if len(retained) < _RETAINED:
            return
        log = self._owner.log
        position = self._files.verified(retained[0]).last.position
        self._owner.disk.complete_sync()  # the round under way holds the disk: wait for it
        before = log.base
        base = log.drop_before(position)
        if base != before:
            self._counts["logs_shortened"] += 1
            self._invariants.on_drop(self._owner.name, base)

    # --- sending -------------------------------------------------------------------------------

    def want(self, chunks: Sequence[InstallChunk]) -> None:
        """Queue the pieces that the core, as a leader, wants sent."""
        for chunk in chunks:
            self._sender.want(chunk)
            self._later(self._send_next)

    def _send_next(self) -> None:
        chunk = self._sender.next(self._owner.term)
        if chunk is None:
            return
        message = self._sender.read(chunk)
        if message is not None:
            self._counts["install_chunks"] += 1
            self._owner.send(message)

    # --- receiving -----------------------------------------------------------------------------

    def received(self, chunk: InstallSnapshot) -> None:
        self._later(partial(self._store, chunk))

    def _store(self, chunk: InstallSnapshot) -> None:
        stored = self._receiver.store(chunk)
        event: ChunkStored | SnapshotStored
        now_ms = self._owner.now_ms()
        if stored.whole:
            event = SnapshotStored(
                now_ms=now_ms,
                leader=chunk.sender,
                base=chunk.base,
                configuration=chunk.configuration,
                snapshot_index=chunk.snapshot_index,
                next_offset=stored.next_offset,
            )
        else:
            event = ChunkStored(
                now_ms=now_ms,
                leader=chunk.sender,
                base_index=chunk.base.index,
                snapshot_index=chunk.snapshot_index,
                next_offset=stored.next_offset,
            )
        self._owner.step_stored(event)

    # --- threads -------------------------------------------------------------------------------

    def _later(self, work: Callable[[], None]) -> None:
        delay_us = int(self._random.random() * _THREAD_US_MAX)
        self._scheduler.after(delay_us, partial(self._run, work))

    def _run(self, work: Callable[[], None]) -> None:
        if not self.stopped:
            self._owner.when_awake(partial(self._guarded, work))

    def _guarded(self, work: Callable[[], None]) -> None:
        if not self.stopped:
            self._owner.guard(work)
