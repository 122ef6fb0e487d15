"""The Raft log in segment files: the CommitLog itself (docs/FORMATS.md section 3).

Place in the data path: the shell appends and truncates what a `Ready` says, `raft.core.core` reads
terms and entries, consumers read stored bytes by position. It touches the disk only through
`raft.storage.Disk`, so that the simulator can run it over a disk that loses, tears and rots.

Invariants:
- positions run through all segments without a gap; a segment holds whole entries only, and is
  fsynced whole, and the durable mark at its end, before its successor is made;
- a truncation really cuts the file, and removes later segments newest first, each removal durable
  before the next: no crash can bring an old tail back behind a new one. The oldest segments are
  removed oldest first, after the base says so;
- what is returned was checked: it is still in memory as it was appended, or it matched the chain
  when it was read (`raft.log.verified_reads`). Damage of durable entries is recorded in `damages`,
  never cut off, and raised as DamagedLogError on access, until `repair` has repaired it;
- after the first OSError nothing is written any more: every later append, truncate or sync raises.
  What an fsync that failed once left behind is unknown, also to a second fsync. For the same reason
  a start reads its last segment from the disk, after an fsync of it, and not from memory: what it
  finds is durable. No durable byte of an entry is ever written again. A full disk that `reserve`
  has met is no such error: nothing was written;
- hard state before log (`raft.log.hard_state`): what is claimed to be durable, by the mark, by the
  end of a segment, by the base or by what `sync` returns, is of no later term than the durable hard
  state. Every claim goes through `_before_claim`.

Threads: everything runs on the loop's thread but `sync`, which may run on one other thread while
the loop goes on reading and appending (a truncation, and the end of a segment, wait for it).
`begin_sync` needs no thread, and holds the same lock until it has ended: two fsyncs of a file at
once share its error, so that one of them may succeed without what the other has lost. It saves no
hard state, so it is refused while one waits to be saved.

Over 500 lines, because all that changes the log's files and claims stands together: the order of
both is what a crash exposes.

Source: Raft 5.3; DLedger's segments; "Can applications recover from fsync failures?" (ATC '20).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from raft.log.damage import Damage
from raft.log.durable_mark import DurableMark, Mark
from raft.log.hard_state import HardStateFile
from raft.log.log_base import BaseFile
from raft.log.log_format import HEADER_SIZE, CorruptLogError, encode_header
from raft.log.log_recovery import RecoveredLog, read_base, recover
from raft.log.log_repair import LogRepair
from raft.log.scrub import Scrub
from raft.log.segment_files import SegmentFiles, segment_positions
from raft.log.segment_index import SegmentIndex, SegmentSummary, encode_sidecar
from raft.log.segment_rebuild import load_sidecar, rebuild_known
from raft.log.segment_table import SegmentTable
from raft.log.tail_cache import TailCache
from raft.log.verified_reads import VerifiedReads
from raft.messages import Entry, Index, LogBase, Term
from raft.storage import Disk, DiskFile, OnSynced

__all__ = ["SegmentLog", "SyncedTo"]

_NOTHING = (0, 0, b"")


class SyncedTo(Struct, frozen=True, kw_only=True, gc=False):
    """Result of a sync: it covered every entry up to `index`, which has `term` (0 and 0: none)."""

    index: Index
    term: Term


class _Tail(Struct, frozen=True, kw_only=True, eq=False):
    """The log's end in one value, so that the syncing thread sees it whole."""

    file: DiskFile
    end: LogBase
    before: LogBase  # of the last segment
    base: LogBase


class _Writing:
    """Context of all that writes: it refuses to be entered after the first OSError, `failure`."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: OSError | None = None

    def __enter__(self) -> None:
        failure = self.failure
        if failure is not None:
            raise OSError(failure.errno, f"the log stopped after: {failure}") from failure

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            self.failure = self.failure or error


class SegmentLog:
    """The log in `directory` of `disk`, recovered at construction.

    `hard_state`: of this store, loaded; None where no vote depends on this log. Raises OSError, and
    CorruptLogError where a durable part is damaged to an unknown extent, or has a term that the
    hard state lacks; damage of known extent is in `damages`. Beside the directory stand
    `DIRECTORY.durable` (raft/log/durable_mark.py) and `DIRECTORY.base` (raft/log/log_base.py).
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        segment_size_bytes_max: int = 64 << 20,
        preallocation_size_bytes: int = 4 << 20,
        tail_size_bytes_max: int = 16 << 20,
        cached_size_bytes: int = 0,
        hard_state: HardStateFile | None = None,
    ) -> None:
        assert HEADER_SIZE <= segment_size_bytes_max < 1 << 31, "offsets have 32 bits"
        self._disk = disk
        self._directory = directory
        self._segment_size_bytes_max = segment_size_bytes_max
        self._hard_state = hard_state
        self._sync_lock = threading.Lock()
        self._syncing: _Tail | None = None  # what holds the lock beside the loop
        self.begins_syncs = False
        """Whether `begin_sync` may be tried; set by the owner of the disk."""
        self._mark = DurableMark(disk, f"{directory}.durable")
        self._base_file = BaseFile(disk, f"{directory}.base")
        self._files = SegmentFiles(
            disk,
            directory,
            segment_size_bytes_max=segment_size_bytes_max,
            preallocation_size_bytes=preallocation_size_bytes,
            cached_size_bytes=cached_size_bytes,
        )
        self._writing = _Writing()
        self._marked = LogBase()  # the highest cut that the mark claims
        self._hot: tuple[int, int, bytes] = _NOTHING  # checked bytes of the last read
        self.found_end: LogBase | None = None
        """Where the log ended before `end_at` dropped entries of it; None where it did not."""
        recovered = self._recover()
        self.recovery = recovered.report
        self._table = SegmentTable(recovered, self._load_index)
        self._reads = VerifiedReads(self._table, self._files)
        self._repair = LogRepair(self._table, self._files)
        self._tail_cache = TailCache(self.last_index + 1, size_bytes_max=tail_size_bytes_max)
        self._settle(recovered)
        self._publish_tail()

    def _recover(self) -> RecoveredLog:
        """Complete what a crash interrupted, then recover the log."""
        disk, directory = self._disk, self._directory
        disk.make_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0])
        disk.sync_directory(directory)
        mark = self._mark.read()
        stored = read_base(disk, directory, self._base_file.read(), mark)
        base = stored.base
        self._refuse_lost_term(base.term)
        if stored.resetting:
            self._empty(base)
            mark = Mark(cut=base, last=base, base=base)
        for first in segment_positions(disk, directory):
            if first < base.position:
                self._files.remove(first)
        self._files.settle_last()
        recovered = recover(disk, directory, base, mark)
        self._refuse_lost_term(recovered.durable_term)
        return recovered

    def _refuse_lost_term(self, term: Term) -> None:
        """Check what `_before_claim` ensured before the write. Raises CorruptLogError."""
        if self._hard_state is not None and term > self._hard_state.durable_term:
            raise CorruptLogError(
                "hard_state",
                0,
                f"term {self._hard_state.durable_term}, but the log has an entry of term {term}, "
                "durable",
            )

    def _settle(self, recovered: RecoveredLog) -> None:
        """Zero the torn tail and claim what is left as durable: it was read from the disk."""
        last = recovered.last
        first = last.before.position
        if self._hard_state is not None and self._table.last_term > self._hard_state.durable_term:
            # Entries that a crash left above the mark: neither they nor their term were ever sent.
            self._hard_state.enter(self._table.last_term)
        self._files.remove_sidecar(first)
        self._files.reopen_last(first, last.end_position - first, recovered.torn_bytes)
        self._files.last.sync()
        self._files.sync_directory()
        for summary in recovered.unindexed:
            sidecar = encode_sidecar(summary, recovered.indexes[summary.position])
            self._files.write_sidecar(summary.position, sidecar)
        recovered.indexes.clear()
        self._reset_mark(self._table.end)
        # The base is last: where there is a base, there was a mark.
        self._base_file.save(self._table.base)

    # --- reads of the core ---------------------------------------------------------------------

    @property
    def base(self) -> LogBase:
        """Place right before the first entry."""
        return self._table.base

    @property
    def first_index(self) -> Index:
        return self._table.base.index + 1

    @property
    def last_index(self) -> Index:
        last = self._table.last  # as the table says it, for one call instead of three
        return last.before.index + len(last.offsets)

    @property
    def last_term(self) -> Term:
        return self._table.last_term

    @property
    def config_indexes(self) -> Sequence[Index]:
        """Indexes of the CONFIG entries, known without reading them."""
        return self._table.config_indexes

    def term(self, index: Index) -> Term:
        """Return the term. Raises IndexError outside [base.index, last_index], DamagedLogError."""
        return self._table.term(index)

    def note_term(self, index: Index, term: Term) -> None:
        """Set the term of an entry that the log may have lost, as a snapshot knows it."""
        self._table.note_term(index, term)

    def entries(self, low: Index, high: Index, size_max: int) -> tuple[Entry, ...]:
        """Return [low, high), at least one entry if low < high, then while within size_max bytes.

        `size_max` counts stored bytes, headers included. Ends before a damaged entry; raises
        DamagedLogError where the first one is, IndexError where the log doesn't hold all of the
        range, and OSError.
        """
        if low >= high:
            return ()
        table = self._table
        if low < self.first_index or high > table.last_index + 1:
            raise IndexError(f"[{low}, {high}) is outside {self.first_index}..{table.last_index}")
        if low >= self._tail_cache.first_index:
            return self._tail_cache.slice(low, high, size_max)
        return tuple(self._reads.entries(low, high, size_max))

    # --- reads of consumers --------------------------------------------------------------------

    @property
    def end_position(self) -> int:
        """One past the last byte of the last entry."""
        return self._table.last.end_position

    def position(self, index: Index) -> int:
        """Return the position of the entry's header; the payload begins HEADER_SIZE later."""
        return self._table.position(index)

    def entry_end(self, index: Index) -> int:
        """Return one past the entry's last byte. Raises IndexError and DamagedLogError."""
        return self._table.segment_of(index).end(index)

    def segment_last_index(self, index: Index) -> Index | None:
        """Return the last index of the segment that holds `index`; None if it still grows."""
        segment = self._table.segment_of(index)
        return None if segment is self._table.last else segment.last_index

    @property
    def first_segment_end(self) -> int:
        """End of the oldest closed segment; the log's beginning if there is none."""
        closed = self._table.closed
        return closed[0].end_position if closed else self._table.base.position

    def chain(self, index: Index) -> int:
        """Return the chain of the entry, or of the base; 0 at index 0."""
        return self._table.chain(index)

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes at `position`, all of one segment (a record never spans two).

        Raises LookupError where the log does not have them, DamagedLogError where they are damaged,
        OSError.
        """
        start, end, data = self._hot
        if not start <= position <= position + size <= end:
            start, data = self._read(position, size)
            self._hot = (start, start + len(data), data)
        offset = position - start
        return data[offset : offset + size]

    def _read(self, position: int, size: int) -> tuple[int, bytes]:
        """Return a stretch of checked bytes that holds the requested ones, and its position."""
        table = self._table
        if size < 0 or position < table.base.position:
            raise LookupError(f"position {position} is before the log's beginning")
        if position + size > table.segment_end(position):
            raise LookupError(f"[{position}, {position + size}) is not in the log")
        if not size:
            return position, b""
        if position >= table.last.before.position:
            index = table.last.index_at(position)
            if index >= self._tail_cache.first_index:
                payload_position = table.last.position(index) + HEADER_SIZE
                payload = self._tail_cache.get(index).payload
                if payload_position <= position <= payload_position + len(payload) - size:
                    return payload_position, payload
        return self._reads.read(position, size)

    # --- writes of the shell -------------------------------------------------------------------

    def reserve(self, size: int) -> bool:
        """Return whether there is room for `size` more bytes of entries, headers included.

        Allocates it where necessary. False where the disk is full: nothing was written, and the log
        stays usable. Raises OSError, and then for every later call.
        """
        files = self._files
        used = self._table.last.end_position - files.position
        if self._writing.failure is None and files.holds(used + size):
            return True
        with self._writing:
            return files.reserve(used, size)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write the entries behind the last one; durable only after a later `sync`.

        Raises OSError (for a full disk too, unless `reserve` was called), and then for every later
        call.
        """
        table, cache = self._table, self._tail_cache
        buffers: list[bytes] = []
        buffers_size = 0
        index, term, chain = table.last_index, table.last_term, table.last_chain
        position = table.last.end_position
        begin = position - self._files.position
        with self._writing:
            for entry in entries:
                payload = entry.payload
                size = HEADER_SIZE + len(payload)
                used = begin + buffers_size
                if used and used + size > self._segment_size_bytes_max:
                    self._files.write(buffers, buffers_size, begin)
                    buffers, buffers_size, begin = [], 0, 0
                    self._begin_segment()
                index += 1
                assert entry.index == index, "entries go on without a gap"
                assert entry.term >= term, "terms never fall along the log"
                term = entry.term
                header, chain = encode_header(entry, position, chain)
                position += size
                buffers.append(header)
                if payload:
                    buffers.append(payload)
                buffers_size += size
                table.append(index, term, entry.kind, size, chain)
                cache.append(entry)
            if buffers_size:
                self._files.write(buffers, buffers_size, begin)
        cache.trim()
        self._publish_tail()

    def truncate_from(self, index: Index) -> None:
        """Drop the entry at `index` and all after it; waits for a sync under way.

        Durable with the next sync. Raises OSError, and then for every later call.
        """
        last_index = self._table.last_index
        if not self.first_index <= index <= last_index + 1:
            raise IndexError(f"index {index} is outside {self.first_index}..{last_index + 1}")
        if index <= last_index:
            self._cut(self._table.cut_before(index))

    def end_at(self, cut: LogBase) -> None:
        """Drop never committed entries behind a NeverCommittedError's cut; there is no core yet.

        Where the entry at the cut is damaged here, its place is known again: the mark names it
        before a byte is dropped. Raises OSError, and then for every later call.
        """
        assert self.base.index <= cut.index < self._table.last_index
        if self.found_end is None:
            self.found_end = self._table.end
        self.enter_term(cut.term)
        self._cut(cut)

    def enter_term(self, term: Term) -> None:
        """Make `term` durable at a start: an entry of it comes from a peer. Raises OSError."""
        if self._hard_state is not None and term > self._hard_state.durable_term:
            self._hard_state.enter(term)

    def _cut(self, cut: LogBase) -> None:
        table, index = self._table, cut.index + 1
        with self._without_syncs():
            # First the claim, then the bytes: a crash between them leaves a mark that is true.
            lowered = cut.position < self._marked.position
            gone = table.truncate_from(cut)
            if lowered or gone:
                self._reset_mark(min(cut, self._marked, key=lambda one: one.position))
            last = table.last.before.position
            if gone:
                self._files.remove_sidecar(last)
                self._files.remove_last()
                # Newest first: a crash in between leaves a shorter log, never one with a gap.
                for position in gone[:-1]:
                    self._files.remove(position)
            self._files.open_last(last, cut.position - last)
            self._repair.forget()
            self._tail_cache.truncate_from(index)
            self._forget_read(cut.position)
            self._publish_tail()

    def sync(self) -> SyncedTo:
        """Make durable every entry whose append returned before this call.

        The one method that may run on another thread; entries appended while it runs are not
        covered. Raises OSError, and then for every later call: what is durable is unknown then.
        """
        with self._sync_lock, self._writing:
            tail = self._tail_to_sync()
            tail.file.sync()
            self._claim(tail)
            self._files.cached.advance(tail.end.position)
            return SyncedTo(index=tail.end.index, term=tail.end.term)

    def begin_sync(self, on_done: OnSynced) -> bool:
        """Begin what `sync` does, on the loop, and return; see `DiskFile.begin_sync`.

        False: not begun, since the disk can't, or since more is due than an fsync of the log. A
        hard state that waits is one such thing: so no sync of this kind can cover an entry, or
        precede a vote, whose hard state is not durable. Raises OSError as `sync` does.
        """
        if (
            not self.begins_syncs
            or self._writing.failure is not None
            or not (self._hard_state is None or self._hard_state.is_saved)
            or self._files.cached.is_due(self._tail.end.position)
            or not self._sync_lock.acquire(blocking=False)
        ):
            return False
        try:
            with self._writing:
                tail = self._tail_to_sync()
                if tail.file.begin_sync(partial(self._end_sync, tail, on_done)):
                    self._syncing = tail
        finally:
            if self._syncing is None:
                self._sync_lock.release()
        return self._syncing is not None

    def _end_sync(self, tail: _Tail, on_done: OnSynced, error: OSError | None) -> None:
        if self._syncing is tail:
            error = self._conclude(error)
        on_done(error or self._writing.failure)

    def _conclude(self, error: OSError | None) -> OSError | None:
        """Claim what `begin_sync` has made durable; return what has failed."""
        tail, self._syncing = self._syncing, None
        assert tail is not None
        try:
            with self._writing:
                if error is not None:
                    raise error
                self._claim(tail)
        except OSError as failure:
            return failure
        finally:
            self._sync_lock.release()
        return None

    def _tail_to_sync(self) -> _Tail:
        """Return what a sync covers that begins now, with the hard state of its entries durable."""
        tail = self._tail  # one reference: the loop may append meanwhile
        self._before_claim(tail.end.term)
        return tail

    def _claim(self, tail: _Tail) -> None:
        """Raise the mark to what was synced."""
        if tail.end.position > self._marked.position:
            self._mark.raise_to(Mark(cut=tail.end, last=tail.before, base=tail.base))
            self._marked = tail.end

    def drop_before(self, position: int, segments_max: int | None = None) -> LogBase:
        """Drop the oldest segments that lie wholly below `position`; return the log's new base.

        Raises OSError, and then for every later call.
        """
        table = self._table
        dropped = [one for one in table.closed if one.end_position <= position][:segments_max]
        while dropped and not table.knows_term(dropped[-1].last_index):
            dropped.pop()  # until it is repaired, the new base's term is unknown
        if not dropped:
            return table.base
        base = replace(dropped[-1].end, term=table.term(dropped[-1].last_index))
        with self._without_syncs():
            # A crash after the base leaves files below it, which the next start removes.
            self._base_file.save(base)
            self._reset_mark(self._marked, base)
            for summary in dropped:
                self._files.remove(summary.position)
            table.drop_segments(len(dropped), base)
            self._repair.forget()
            self._forget_read(0)
            self._publish_tail()
        return base

    def reset(self, base: LogBase) -> None:
        """Empty the log: it begins behind `base` now, the base of an installed snapshot.

        Raises OSError, and then for every later call. A crash in it leaves the old log or the empty
        one.
        """
        with self._without_syncs():
            self._before_claim(base.term)
            # A crash from here on: the next start goes on emptying the log.
            self._base_file.save(base, resetting=True)
            self._files.remove_last()
            self._empty(base)
            self._table.reset(base)
            self._files.open_last(base.position, 0)
            self._files.last.sync()
            self._files.sync_directory()
            self._base_file.save(base)
            self._marked = base
            self._repair.forget()
            self._tail_cache.clear(base.index + 1)
            self._forget_read(0)
            self._publish_tail()

    # --- damage --------------------------------------------------------------------------------

    @property
    def damages(self) -> tuple[Damage, ...]:
        """Known damage, in order. Reads of it raise DamagedLogError."""
        return self._table.damages.all()

    def wanted_index(self, damage: Damage) -> Index:
        """Return the first entry of the damage that `repair` still needs."""
        return self._repair.wanted_index(damage)

    def copies(self, low: Index, high: Index, size_max: int) -> tuple[Entry, ...]:
        """Return `entries`, including those before a damage that are unconfirmed because of it.

        Only for a peer that checks them against what it knows of the log, as `repair` does.
        """
        if low < self.first_index or high > self.last_index + 1:
            raise IndexError(f"[{low}, {high}) is outside {self.first_index}..{self.last_index}")
        return tuple(self._reads.entries(low, high, size_max, confirmed=False))

    def repair(
        self,
        first_index: Index,
        entries: Sequence[Entry],
        *,
        chain_before: int | None = None,
        committed_index: Index = 0,
    ) -> None:
        """Replace damaged entries by a peer's, from `wanted_index` on.

        They may be fewer than are missing; those behind the damage are ignored. `chain_before` is
        the chain that they continue at the peer, where they are committed up to `committed_index`.
        Durable when this returns. Raises ValueError (not the entries that are wanted next),
        RepairMismatchError (not the entries that stood here: start again at `wanted_index`),
        NeverCommittedError (what stood here never was committed), and OSError, and then for every
        later call.
        """
        with self._writing:
            position = self._repair.repair(first_index, entries, chain_before, committed_index)
        self._forget_read(position)

    def forget_repairs(self) -> None:
        """Discard unfinished repairs that no peer can continue: start again at `wanted_index`."""
        self._repair.forget()

    def compare(self, entry: Entry, chain_before: int) -> None:
        """Check whether a peer's committed entry, which continues `chain_before`, contradicts this
        log. Raises NeverCommittedError, RepairMismatchError and OSError as `repair` does."""
        self._repair.compare(entry, chain_before)

    def scrub(self) -> Scrub:
        """Return a scrub of the present closed segments; its steps may run on any thread."""
        return Scrub(self._disk, self._directory, self._table.closed)

    def note_damages(self, found: Sequence[Damage]) -> tuple[Damage, ...]:
        """Verify a scrub's findings; return what is really damaged, which is recorded now."""
        confirmed: list[Damage] = []
        for damage in found:
            low = max(damage.first_index, self.first_index)
            high = min(damage.last_index, self._table.last.before.index) + 1
            confirmed += self._reads.verify(low, high)
        return tuple(confirmed)

    def close(self) -> None:
        """Close every file; not a sync. One that hangs in the kernel is not waited for."""
        with nullcontext() if self._syncing is not None else self._sync_lock:
            self._mark.close()
            self._base_file.close()
            self._files.close()

    # --- inside --------------------------------------------------------------------------------

    @contextmanager
    def _without_syncs(self) -> Iterator[None]:
        """Wait for the sync under way, let none begin within the block, write as `_writing`
        does."""
        if self._syncing is not None:
            self._conclude(self._disk.wait_for_syncs())
        with self._sync_lock, self._writing:
            yield

    def _before_claim(self, term: Term) -> None:
        """Make `term` durable: hard state before log. Raises OSError."""
        if self._hard_state is not None:
            self._hard_state.require(term)

    def _begin_segment(self) -> None:
        """Close the current segment, durable and cut to its entries, and begin the next."""
        table, files = self._table, self._files
        end = table.end
        with self._without_syncs():
            self._before_claim(end.term)
            files.finish_last(end.position - files.position)
            # Before the successor exists: recovery takes a segment with a successor as durable.
            self._mark.raise_to(Mark(cut=end, last=end, base=table.base))
            self._mark.sync()
            self._marked = end
        summary = table.summary_of_last()
        if not table.has_unknown(summary):
            files.write_sidecar(summary.position, encode_sidecar(summary, table.last))
        files.begin(end.position)
        table.close_last(summary)

    def _load_index(self, summary: SegmentSummary) -> SegmentIndex:
        """Load the index of a closed segment from its sidecar, or rebuild both from its bytes.

        Raises OSError; where writing the sidecar failed, so does every later write.
        """
        index = load_sidecar(self._disk, self._directory, summary)
        if index is not None:
            return index
        rebuilt = rebuild_known(self._disk, self._directory, summary)
        if rebuilt.damage is not None:
            self._table.damages.add(rebuilt.damage)
        elif (
            self._writing.failure is None
        ):  # a stopped log is still read, but writes no cache either
            with self._writing:
                self._files.write_sidecar(summary.position, encode_sidecar(summary, rebuilt.index))
        return rebuilt.index

    def _empty(self, base: LogBase) -> None:
        """Remove every segment, newest first, and claim nothing but the base."""
        for first in reversed(segment_positions(self._disk, self._directory)):
            self._files.remove(first)
        self._before_claim(base.term)
        self._mark.reset(Mark(cut=base, last=base, base=base))

    def _reset_mark(self, cut: LogBase, base: LogBase | None = None) -> None:
        """Claim what precedes `cut`, and that the log begins behind `base`; None: no change."""
        self._before_claim(cut.term)
        self._marked = cut
        last = self._table.last.before
        self._mark.reset(Mark(cut=cut, last=last, base=base or self._table.base))

    def _forget_read(self, position: int) -> None:
        self._hot = _NOTHING
        self._reads.forget_from(position)

    def _publish_tail(self) -> None:
        table, file = self._table, self._files.last
        self._tail = _Tail(file=file, end=table.end, before=table.last.before, base=table.base)
