"""Indexer of applied messages by key, a little behind the applied log.

Place in the data path: beside it. The state machine says how far it has applied, and leaves the
newest entries in `broker.entry.applied_entries`; entries that are no longer there the indexer reads
from the log. It adds the keys to `broker.index.message_index`, a few milliseconds at a time, so
that requests never wait for it long, and not before 256 KiB of log or a second have come together:
for a dozen keys the arrays that it works with cost more than the keys do. Under a load that takes
all of the processor it may fall behind; a lookup then has it catch up first (`caught_up`). Its
progress is saved every few seconds, on a thread: keys that were added since then are added again
after a kill.

Invariants: only applied, so committed, entries are indexed, each once, in the log's order; at most
one slice's keys are in memory; a full disk stops the index and nothing else; an index that is of
another log (the chain of its last entry differs) is rebuilt.

Source: RocketMQ ReputMessageService, CommitLogDispatcherBuildIndex.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.entry.applied_entries import AppliedEntries
from broker.entry.payload import decode_payload
from broker.index.entry_reader import EntryReader, RaftEntryReader, StoredEntry
from broker.index.index_file import IndexFile, IndexShape
from broker.index.key_hashes import IndexedKeys, key_hash, topic_hash
from broker.index.message_index import IndexProgress, IndexState, MessageIndex
from broker.index.message_keys import KeyCollector
from broker.queues.derived_files import NO_ROOM
from broker.request.tasks import TaskOwner
from raft.log.damage import DamagedLogError
from raft.replicated_log import ReplicatedLog

__all__ = ["Indexer"]

_log = logging.getLogger(__name__)
_SLICE_S: Final = 0.003
_HASTY_SLICE_S: Final = 0.010
_KEYS_PER_SLICE_MAX: Final = 8_192
_SAVE_INTERVAL_S: Final = 10.0
_HOUSEKEEPING_S: Final = 1.0
_WAIT_S: Final = 1.0
_GATHERED_S: Final = 1.0
_GATHERED_SIZE: Final = 256 << 10
_IDLE_S: Final = 0.02


class Indexer:
    """Indexer of one broker. `applied_position` returns the position up to which the log was
    applied here; `round` is called every 25 ms or so, on the loop."""

    def __init__(
        self,
        log: ReplicatedLog,
        directory: Path,
        shape: IndexShape,
        tasks: TaskOwner,
        *,
        applied_position: Callable[[], int],
        applied: AppliedEntries,
        entries: EntryReader | None = None,
    ) -> None:
        """`entries` reads the log's entries; by default they are framed as the Raft log's."""
        self._log = log
        self._entries = entries or RaftEntryReader(log)
        self._tasks = tasks
        self._applied_position = applied_position
        self._applied = applied
        self._collector = KeyCollector()
        self.index = MessageIndex(directory, shape)
        self._opens = False  # between start and stop
        self._is_open = False
        self._checked = False  # that the index is of this log
        self._worked_s = 0.0
        self._housekept_s = 0.0
        self._saved_s = 0.0
        self._saving = False
        self._waits_until_s = 0.0
        self._sealing: set[Path] = set()

    # Life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the index that is on the disk, on a thread; where that is full, try again later.
        Raises OSError."""
        self._opens = True
        await self._open()

    async def _open(self) -> None:
        self._waits_until_s = math.inf  # no round opens it meanwhile
        try:
            await asyncio.to_thread(self.index.open)
        except OSError as error:
            self.index.abandon()
            self._wait_for_room(error, "is not open")
        else:
            self._is_open, self._waits_until_s = self._opens, 0.0

    def stop(self) -> None:
        """Close the index; on a full disk the next start builds it again. Raises OSError."""
        self._opens = False
        if self._is_open:
            self._is_open = False
            try:
                self.index.close()
            except OSError as error:
                self.index.abandon()
                self._wait_for_room(error, "is not saved")

    def _wait_for_room(self, error: OSError, what: str) -> None:
        """Note that the disk is full. Raises any other error."""
        if error.errno not in NO_ROOM:
            raise error
        self._waits_until_s = time.monotonic() + _WAIT_S
        _log.warning("the index by key %s: no room on the disk", what)

    # Falling behind and catching up ------------------------------------------------------------

    @property
    def behind(self) -> int:
        """Number of bytes of the applied log that are not indexed yet."""
        return max(0, self._applied_position() - self.index.progress.next_position)

    def round(self) -> None:
        """Index for a few milliseconds. Raises OSError, but not where the disk is full."""
        now_s = time.monotonic()
        if not self._is_open:
            if self._opens and now_s >= self._waits_until_s:
                self._waits_until_s = math.inf
                self._tasks.spawn(self._open())
            return
        behind = self.behind
        is_due = behind >= _GATHERED_SIZE or now_s - self._worked_s >= _GATHERED_S
        if behind and is_due and now_s >= self._waits_until_s:
            self._worked_s = now_s
            self._work(now_s + _SLICE_S)
        if now_s - self._housekept_s >= _HOUSEKEEPING_S:
            self._housekept_s = now_s
            self._housekeep(now_s)

    def is_idle(self) -> bool:
        """Return whether less is to be indexed than is worth a round."""
        return self.behind < _GATHERED_SIZE

    async def caught_up(self, timeout_s: float) -> bool:
        """Index all that is applied now; False where that took too long. Raises OSError.

        Caller's duty: this node has just proved to be the leader, so it has applied all that it
        ever had.
        """
        target = self._applied_position()
        if self._is_open and self.index.progress.next_position > target:
            try:
                self._rebuild()
            except OSError as error:
                self._wait_for_room(error, "is not cleared")
                return False
        deadline_s = time.monotonic() + timeout_s
        while not self._is_open or self.index.progress.next_position < target:
            now_s = time.monotonic()
            if now_s >= deadline_s:
                return False
            before = self.index.progress
            if self._is_open and now_s >= self._waits_until_s:
                self._work(now_s + _HASTY_SLICE_S)
            await asyncio.sleep(_IDLE_S if self.index.progress == before else 0)
        return True

    async def look_up(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        """Return positions of records that may have this key, newest first. Raises OSError."""
        if not self._is_open:
            return []
        hashed = key_hash(topic_hash(topic), key)
        positions = await asyncio.to_thread(
            self.index.look_up(hashed).positions,
            begin_ms=begin_ms,
            end_ms=end_ms,
            count_max=count_max,
        )
        return list(dict.fromkeys(positions))  # some may be there twice, after a full disk

    # Working -----------------------------------------------------------------------------------

    def _work(self, until_s: float) -> None:
        """Add the keys of entries that can be read until `until_s`."""
        try:
            if not self._checked:
                self._check_log()
                self._checked = True
            keys, progress = self._read(until_s)
            if progress != self.index.progress:
                self.index.add(keys, progress)
        except (DamagedLogError, LookupError) as error:
            # Fetched from another replica, or installed, in a while: logged where that is done.
            _log.debug("the index by key waits: %r", error)
            self._waits_until_s = time.monotonic() + _WAIT_S
        except OSError as error:
            self._wait_for_room(error, f"is {self.behind} bytes behind")

    def _read(self, until_s: float) -> tuple[IndexedKeys, IndexProgress]:
        """Return the keys of the next entries, as many as time and memory allow, and the progress
        with them.

        Raises DamagedLogError and LookupError where the first one can't be read.
        """
        begin = self._log.status().begin_position
        if begin > self.index.progress.next_position:
            self.index.skip_to(begin)
        progress, limit = self.index.progress, self._applied_position()
        collector = self._collector
        collector.clear()
        while progress.next_position < limit:
            try:
                progress = self._collect(progress.next_position)
            except (DamagedLogError, LookupError):
                if progress == self.index.progress:
                    raise
                break
            if len(collector) >= _KEYS_PER_SLICE_MAX or time.monotonic() >= until_s:
                break
        return collector.take(), progress

    def _collect(self, position: int) -> IndexProgress:
        """Collect the keys of the entry at `position`; returns the progress with it. Raises
        DamagedLogError and LookupError."""
        applied = self._applied.take(position)
        if applied is not None:
            entry = applied.entry
            if applied.payload is not None:
                self._collector.add(applied.payload, entry.payload, entry.position)
            return IndexProgress(
                next_position=applied.end, last_position=position, chain=entry.chain
            )
        stored = self._entries.read(position)
        if stored.payload is not None:
            data = stored.payload
            self._collector.add(decode_payload(data), data, stored.position)
        return IndexProgress(next_position=stored.end, last_position=position, chain=stored.chain)

    def _check_log(self) -> None:
        """Clear the index where it is of another log: the entry that it read last is not there."""
        progress = self.index.progress
        if progress.last_position < self._log.status().begin_position:
            return  # nothing to compare with: the log begins behind it
        if progress.next_position <= self._applied_position():
            stored = self._last_entry(progress.last_position)
            if stored is not None and (stored.chain, stored.end) == (
                progress.chain,
                progress.next_position,
            ):
                return
        self._rebuild()

    def _last_entry(self, position: int) -> StoredEntry | None:
        """Return the entry there; None where none begins there."""
        try:
            return self._entries.read(position)
        except LookupError:
            return None

    def _rebuild(self) -> None:
        _log.warning("the index by key is of another log: it is rebuilt")
        self.index.clear()

    def _housekeep(self, now_s: float) -> None:
        """Remove files whose messages retention took, save, and seal full files. Raises OSError."""
        if self._saving:
            return  # files must stay until they were flushed
        trimmed = self.index.trim(self._log.status().begin_position)
        if trimmed or now_s - self._saved_s >= _SAVE_INTERVAL_S:
            self._saved_s = now_s
            unsaved = self.index.unsaved()
            if unsaved is not None:
                self._saving = True
                self._tasks.spawn(self._save(*unsaved))
        for file in self.index.unsealed():
            if file.path not in self._sealing:
                self._sealing.add(file.path)
                self._tasks.spawn(self._seal(file))

    async def _save(self, state: IndexState, files: list[IndexFile]) -> None:
        try:
            for file in files:
                await asyncio.to_thread(file.flush)
            if self._is_open:
                self.index.save(state)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            _log.warning("the checkpoint of the index by key waits for room on the disk")
        finally:
            self._saving = False

    async def _seal(self, file: IndexFile) -> None:
        try:
            await asyncio.to_thread(file.flush)
            if await asyncio.to_thread(file.sync) and self._is_open:
                file.seal()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            _log.warning("a full file of the index by key waits for room on the disk")
        finally:
            self._sealing.discard(file.path)
