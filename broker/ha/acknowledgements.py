"""Which appended entries still wait for an fsync or for slaves before they are answered.

Place in the data path: `broker.ha.engine` adds an entry once it is applied; the flusher and the
connections of slaves report how far they are. Pure: times are arguments.

Invariants: each entry is answered once, in whatever order; one that waits for both disk and slaves
is answered when both are known, and the slaves' status goes before the disk's where both failed.
An entry is never taken back: whatever its status says, it is stored here.

Source: RocketMQ CommitLog.handleDiskFlushAndHA, GroupTransferService, GroupCommitService.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from raft.replicated_log import ProposalStatus

__all__ = ["Acknowledgements"]


@dataclass(slots=True)
class _Part:
    """Entries in the log's order that wait for one thing, and the status of those that miss it."""

    timeout_ms: int
    on_timeout: ProposalStatus
    waiting: deque[_Open] = field(default_factory=deque)


@dataclass(slots=True)
class _Open:
    end: int
    answer: Callable[[ProposalStatus], None]
    added_ms: int
    parts_left: int = 0
    status: ProposalStatus = ProposalStatus.COMMITTED


class Acknowledgements:
    """The appended entries that are not answered yet; it calls `answer` of each exactly once."""

    def __init__(self, *, sync_flush_timeout_ms: int, slave_timeout_ms: int) -> None:
        self._disk = _Part(sync_flush_timeout_ms, ProposalStatus.FLUSH_DISK_TIMEOUT)
        self._slaves = _Part(slave_timeout_ms, ProposalStatus.FLUSH_SLAVE_TIMEOUT)

    def __len__(self) -> int:
        return len({id(entry) for part in (self._disk, self._slaves) for entry in part.waiting})

    def add(
        self,
        end: int,
        answer: Callable[[ProposalStatus], None],
        *,
        now_ms: int,
        for_disk: bool,
        for_slaves: bool,
        slaves_available: bool,
    ) -> None:
        """Keep the entry that ends at `end` until it may be answered, or answer it at once.

        `for_disk` and `for_slaves`: it waits for the fsync, for slaves. `slaves_available`: enough
        slaves are connected and close behind. Caller's duty: `end` never decreases from one call
        to the next; several entries may have the same.
        """
        entry = _Open(end, answer, now_ms)
        if for_slaves and not slaves_available:
            entry.status = ProposalStatus.SLAVE_NOT_AVAILABLE
        elif for_slaves:
            self._slaves.waiting.append(entry)
            entry.parts_left += 1
        if for_disk:
            self._disk.waiting.append(entry)
            entry.parts_left += 1
        if not entry.parts_left:
            answer(entry.status)

    def durable(self, position: int) -> None:
        """Note that all before `position` is fsynced here; answer what waits for no more."""
        self._reached(self._disk, position)

    def replicated(self, position: int) -> None:
        """Note that enough slaves have all before `position`; answer what waits for no more."""
        self._reached(self._slaves, position)

    @property
    def next_deadline_ms(self) -> int | None:
        """Return when `expire` has to be called next; None while no entry waits."""
        return min(
            (
                part.waiting[0].added_ms + part.timeout_ms
                for part in (self._disk, self._slaves)
                if part.waiting
            ),
            default=None,
        )

    def expire(self, now_ms: int) -> None:
        """End the waits whose timeouts have passed: their entries get the status of the timeout."""
        for part in (self._disk, self._slaves):
            while part.waiting and now_ms >= part.waiting[0].added_ms + part.timeout_ms:
                entry = part.waiting.popleft()
                if part is self._slaves or entry.status is ProposalStatus.COMMITTED:
                    entry.status = part.on_timeout
                self._part_ended(entry)

    def stop(self) -> None:
        """Answer every waiting entry, because this node has stopped."""
        entries = {id(entry): entry for entry in (*self._disk.waiting, *self._slaves.waiting)}
        self._disk.waiting.clear()
        self._slaves.waiting.clear()
        for entry in entries.values():
            entry.answer(ProposalStatus.STOPPED)

    def _reached(self, part: _Part, position: int) -> None:
        while part.waiting and part.waiting[0].end <= position:
            self._part_ended(part.waiting.popleft())

    @staticmethod
    def _part_ended(entry: _Open) -> None:
        entry.parts_left -= 1
        if not entry.parts_left:
            entry.answer(entry.status)
