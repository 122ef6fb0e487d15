"""Sends a snapshot file to a follower that lacks the log's beginning, and receives one.

Place in the data path: `raft.core.core` requests a chunk of a snapshot for a follower
(`InstallChunk`) and passes on the chunks that arrive (`received_chunk`);
`raft.snapshots.install_stream` (in the simulator `chaos.sim.cores.snapshots`) reads and writes them
with the classes here, on a thread, and reports the results to the core. The bytes sent are those of
the snapshot file, so that the received file can be verified.

Invariants:
- a transfer keeps its snapshot and its base from the first chunk to the last;
- the received file counts only once it is whole, checked from end to end, known to hold a state,
  fsynced and renamed; it replaces no other: those are removed once it is installed;
- all installs of a leader together stay within a rate, so that the group goes on serving.

Source: Raft, section 7.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from isal.isal_zlib import crc32

from raft.events import InstallChunk
from raft.log.segment_files import NO_ROOM
from raft.membership import Configuration, decode_membership
from raft.messages import Index, InstallSnapshot, LogBase, NodeId, Term
from raft.snapshots.snapshot import (
    DamagedSnapshotError,
    SnapshotFiles,
    SnapshotHeader,
    read_blocks,
    read_header,
    verify,
)
from raft.storage import DiskFile, write_fully

__all__ = ["Accept", "InstallReceiver", "InstallSender", "RateLimit", "Received"]

Accept: TypeAlias = Callable[[SnapshotHeader, Iterable[bytes]], None]

_log = logging.getLogger(__name__)


class RateLimit:
    """Computes when the next chunk may be sent; pure. `rate` 0: at once."""

    def __init__(self, rate_bytes_per_s: int) -> None:
        assert rate_bytes_per_s >= 0
        self._rate = rate_bytes_per_s
        self._free_at_ms = 0.0

    def delay_ms(self, now_ms: int) -> float:
        """Return how long to wait before the next chunk."""
        return max(0.0, self._free_at_ms - now_ms)

    def spent(self, now_ms: int, size_bytes: int) -> None:
        """Note that a chunk was sent. Idle time is not made up for."""
        if self._rate:
            begin = max(self._free_at_ms, now_ms)
            self._free_at_ms = begin + size_bytes * 1000 / self._rate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outgoing:
    """One transfer, as it was started."""

    term: Term
    base: LogBase
    configuration: Configuration
    snapshot_index: Index
    size: int


class InstallSender:
    """The leader's side. `read` may run on a thread, one call at a time."""

    def __init__(
        self,
        node_id: NodeId,
        files: SnapshotFiles,
        base: Callable[[], LogBase],
        *,
        chunk_size_bytes: int,
    ) -> None:
        self._node_id = node_id
        self._files = files
        self._base = base
        self._chunk_size_bytes = chunk_size_bytes
        self._wanted: dict[NodeId, InstallChunk] = {}
        self._transfers: dict[NodeId, _Outgoing] = {}

    def want(self, chunk: InstallChunk) -> None:
        """Queue a chunk that the core requests; it replaces one for the same follower."""
        self._wanted[chunk.receiver] = chunk

    def next(self, term: Term) -> InstallChunk | None:
        """Return the oldest chunk to read now; those of an earlier term are dropped."""
        while self._wanted:
            receiver = next(iter(self._wanted))
            chunk = self._wanted.pop(receiver)
            if chunk.term == term:
                return chunk
        return None

    def read(self, wanted: InstallChunk) -> InstallSnapshot | None:
        """Read the chunk; None where there is no valid snapshot. Raises OSError."""
        transfer = self._transfers.get(wanted.receiver)
        goes_on = (
            transfer is not None
            and transfer.term == wanted.term
            and transfer.snapshot_index == wanted.snapshot_index
            and transfer.base.index == wanted.base_index
            and wanted.offset <= transfer.size
        )
        offset = wanted.offset
        if transfer is None or not goes_on:
            transfer, offset = self._begin(wanted.term), 0
            if transfer is None:
                return None
            self._transfers[wanted.receiver] = transfer
        try:
            file = self._files.open(transfer.snapshot_index)
        except FileNotFoundError:  # there are two newer ones since: start with the newest
            del self._transfers[wanted.receiver]
            return self.read(wanted)
        try:
            data = file.pread(self._chunk_size_bytes, offset)
        finally:
            file.close()
        return InstallSnapshot(
            sender=self._node_id,
            receiver=wanted.receiver,
            term=transfer.term,
            base=transfer.base,
            configuration=transfer.configuration,
            snapshot_index=transfer.snapshot_index,
            snapshot_size=transfer.size,
            offset=offset,
            data=data,
            crc=crc32(data),
        )

    def _begin(self, term: Term) -> _Outgoing | None:
        """Start a transfer of the newest valid snapshot at or behind the log's base."""
        base = self._base()
        for index in reversed(self._files.indexes()):
            if index < base.index:
                break
            try:
                header = self._files.verified(index)
                size = self._size(index)
            except FileNotFoundError:  # it was replaced by newer ones since the listing
                continue
            except DamagedSnapshotError as error:
                _log.error("a snapshot is damaged and not sent: %s", error)
                continue
            return _Outgoing(
                term=term,
                base=base,
                configuration=Configuration(
                    index=header.config_index, membership=decode_membership(header.membership)
                ),
                snapshot_index=index,
                size=size,
            )
        return None

    def _size(self, index: Index) -> int:
        file = self._files.open(index)
        try:
            return file.size()
        finally:
            file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Result of a chunk: all before `next_offset` is here; `whole`: the file is durable, named."""

    next_offset: int
    whole: bool = False


class InstallReceiver:
    """The follower's side: one snapshot at a time grows in a file. `store` is called by one thread
    at a time, `close` by any.

    A transfer survives broken connections; another leader, or another snapshot, starts anew. Where
    the disk is full it waits: the leader learns where to go on, and repeats its chunk now and then.
    `accept` is called with each that is whole, before it counts as this store's; what it raises
    passes through, and nothing has changed then.
    """

    def __init__(
        self, files: SnapshotFiles, *, size_bytes_max: int, accept: Accept = lambda _, __: None
    ) -> None:
        self._files = files
        self._size_bytes_max = size_bytes_max
        self._accept = accept
        self._begun: tuple[NodeId, Index, Index, int] | None = None
        self._file: DiskFile | None = None
        self._offset = 0
        self._is_full = False  # logged already
        self._lock = threading.Lock()

    def store(self, chunk: InstallSnapshot) -> Received:
        """Store the chunk, if it is of use. Raises as `accept`, and OSError unless for no room."""
        with self._lock:
            return self._store(chunk)

    def _store(self, chunk: InstallSnapshot) -> Received:
        key = (chunk.sender, chunk.base.index, chunk.snapshot_index, chunk.snapshot_size)
        if chunk.snapshot_size > self._size_bytes_max:
            _log.error(
                "%s sends a snapshot of %d bytes, at most %d are taken",
                chunk.sender,
                chunk.snapshot_size,
                self._size_bytes_max,
            )
            return Received(next_offset=0)
        try:
            if key != self._begun:
                if chunk.offset:
                    return Received(next_offset=0)
                if self._holds(chunk.snapshot_index):  # killed before it reported so
                    return Received(next_offset=chunk.snapshot_size, whole=True)
                self._begin(key)
            fits = len(chunk.data) <= chunk.snapshot_size - chunk.offset
            if chunk.offset == self._offset and fits and crc32(chunk.data) == chunk.crc:
                self._append(chunk.data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._report_full(chunk, error)
            return Received(next_offset=self._offset if key == self._begun else 0)
        self._is_full = False
        if self._offset < chunk.snapshot_size:
            return Received(next_offset=self._offset)
        if not self._finish(chunk):
            return Received(next_offset=0)
        return Received(next_offset=chunk.snapshot_size, whole=True)

    def close(self) -> None:
        """Drop the incoming file. What has arrived is deleted at the next start. Waits for a chunk
        that is being stored: its file's descriptor may be another file's a moment later."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        file, self._file = self._file, None
        self._begun = None
        if file is not None:
            file.close()

    def _report_full(self, chunk: InstallSnapshot, error: OSError) -> None:
        if not self._is_full:
            self._is_full = True
            _log.warning("no room for the snapshot that %s sends: %s", chunk.sender, error)

    def _begin(self, key: tuple[NodeId, Index, Index, int]) -> None:
        self._drop()
        self._file = self._files.open_incoming()
        self._file.truncate(0)
        self._begun, self._offset = key, 0

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        write_fully(self._file, data, self._offset)
        self._offset += len(data)

    def _finish(self, chunk: InstallSnapshot) -> bool:
        """Verify that all bytes together are a snapshot, and the announced one."""
        file = self._file
        assert file is not None
        try:
            index = verify(file, self._files.incoming_path).last.index
        except DamagedSnapshotError as error:
            _log.error("the snapshot that %s sent is not used: %s", chunk.sender, error)
            self._drop()
            return False
        if index != chunk.snapshot_index:
            _log.error("%s sent a snapshot of %d as %d", chunk.sender, index, chunk.snapshot_index)
            self._drop()
            return False
        path = self._files.incoming_path
        # Before the file counts: a node that can't read the state must not start on it.
        self._accept(read_header(file, path)[0], read_blocks(file, path))
        file.sync()
        self._drop()
        self._files.adopt_incoming(index)
        return True

    def _holds(self, index: Index) -> bool:
        if index not in self._files.indexes():
            return False
        try:
            header = self._files.verified(index)
        except DamagedSnapshotError as error:
            _log.error("a snapshot is damaged and received anew: %s", error)
            self._files.remove(index)
            return False
        self._accept(header, self._files.chunks(index))
        return True
