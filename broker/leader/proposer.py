"""Proposer of the leader: batches requests and proposes one log entry per batch.

Place in the data path: processors submit `Proposal`s; while the last entries are in flight, what
arrives is gathered; each flush makes one payload, one append, one AppendEntries. Outcomes come
back through `Proposal.on_done`, after the state machine has applied the entry.

What the leader has proposed but not yet applied is its *overlay*: next queue offsets, keys, topics,
consumer offsets and decisions in flight. It is empty when leadership begins (the log takes
proposals only once everything before is applied) and discarded when it ends.

Invariants: offsets are given in the order in which records enter the log (promise G3); a key or a
half has at most one proposal in flight, later ones wait for its outcome (promises G2, G4); no
proposal is answered twice, none is forgotten; a refusal without a log entry is definite; pending
proposals are bounded, by number and by bytes, commands included; a proposal that fits no entry is
rejected alone, not with its batch; if the newest of several about one name or offset is rejected,
the ones before it stay in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from broker.entry.levels import delay_ms
from broker.entry.payload import (
    NO_WORDS,
    PAYLOAD_HEADER,
    UNIT,
    UNIT_SIZE,
    Command,
    DeleteTopicCommand,
    OffsetCommand,
    Run,
    TopicCommand,
    encode_command,
    encode_header,
    encode_table,
)
from broker.entry.record import PendingRecord
from broker.entry.topics import SCHEDULE_TOPIC, Topic
from broker.state.state import BrokerState
from raft.replicated_log import (
    LogFullError,
    NotLeaderError,
    ProposalResult,
    ProposalStatus,
    ReplicatedLog,
    Slot,
)
from raft.turn import Turn
from remoting.records.properties import property_mark
from remoting.records.property_names import PropertyName

__all__ = ["BusyError", "Proposal", "Proposer", "ProposerLimits"]

_KEYS: Final = property_mark(PropertyName.KEYS)
_WAITING_PER_KEY_MAX = 1_000


_log = logging.getLogger(__name__)


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _InFlight(Generic[_Key, _Value]):
    """Values in flight of each key, in the order of submission. They end in any order: one that
    the log has rejected ends before those ahead of it."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[_Key, dict[int, _Value]] = {}  # by the value's identity

    def begin(self, key: _Key, value: _Value) -> None:
        self._open.setdefault(key, {})[id(value)] = value

    def newest(self, key: _Key) -> _Value | None:
        values = self._open.get(key)
        return None if values is None else next(reversed(values.values()))

    def end(self, key: _Key, value: _Value) -> None:
        values = self._open.get(key)
        if values is not None:
            values.pop(id(value), None)
            if not values:
                del self._open[key]


class BusyError(Exception):
    """Error of a full queue of proposals: definite, nothing was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposerLimits:
    pending_max: int = 10_000  # proposals that wait for a batch
    pending_size_max: int = 256 << 20  # bytes of their records and commands
    batch_records_max: int = 1_024
    batch_size_max: int = 1 << 18  # likewise; one larger proposal goes alone
    entries_in_flight_max: int = 6


@dataclass(slots=True, kw_only=True)
class Proposal:
    """Records and commands to be stored together or not at all.

    `on_done` is called exactly once: with the status of the entry that held it, or with None where
    it surely was not stored (this node can't propose).
    """

    records: Sequence[PendingRecord] = ()
    commands: Sequence[Command] = ()
    on_done: Callable[[ProposalStatus | None], None]
    half_queue_offset: int | None = None  # the half that it decides or discards
    ends_batch: bool = False  # what is submitted later stands in a later entry
    waiting: tuple[Callable[[], None], ...] = ()  # called after `on_done`
    size: int = 0  # bytes of its records and commands, once it is submitted
    encoded: Sequence[bytes] = ()  # its commands, likewise


class Proposer:
    def __init__(
        self,
        log: ReplicatedLog,
        state: BrokerState,
        *,
        store_host: bytes,
        clock_ms: Callable[[], int],
        lead_ms: Callable[[], int],
        limits: ProposerLimits,
        turn: Turn,
    ) -> None:
        """`clock_ms` returns group time, for stamps; `lead_ms` returns how far it certainly is
        ahead of the true time. What is submitted within a turn of `turn` is one batch."""
        self._turn = turn
        self._log = log
        self._state = state
        self._store_host = store_host
        self._clock_ms = clock_ms
        self._lead_ms = lead_ms
        self._limits = limits
        self._pending: deque[Proposal] = deque()
        self._pending_size = 0
        self._in_flight = 0
        self._flush_scheduled = False
        self._next_offsets: dict[tuple[str, int], int] = {}
        self._moved: dict[tuple[str, int], int | None] = {}  # what the last entry's places moved
        self._alone = 0  # how many of those that wait first fitted no entry together
        self._last_store_ms = 0
        self._waiting_for: dict[str, list[Callable[[ProposalStatus | None], None]]] = {}
        self._keys: dict[str, PendingRecord] = {}
        self._deleting: dict[str, int] = {}  # how many deletions of the topic are in flight
        self._term = 0  # of the newest entry that was proposed
        self._topics: _InFlight[str, Command] = _InFlight()
        self._decisions: dict[int, Proposal] = {}
        self._offsets: _InFlight[tuple[str, str, int], Proposal] = _InFlight()

    # What is in flight -------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """Return the topic as it will be once everything in flight is applied, or None."""
        command = self._topics.newest(name)
        if isinstance(command, TopicCommand):
            return Topic.of_command(command)
        return self._state.topics.get(name) if command is None else None

    def is_being_deleted(self, topic: str) -> bool:
        """Whether a deletion of the topic is in flight, whatever else of it is."""
        return topic in self._deleting

    def in_flight_key(self, key: str) -> PendingRecord | None:
        """Return the record in flight with this dedupe key, or None."""
        return self._keys.get(key)

    def has_none_in_flight(self, keys: Collection[str]) -> bool:
        return self._keys.keys().isdisjoint(keys)

    def join_key(self, key: str, on_done: Callable[[ProposalStatus | None], None]) -> None:
        """Call `on_done` after the record in flight with this key. Raises BusyError."""
        waiting = self._waiting_for.setdefault(key, [])
        if len(waiting) >= _WAITING_PER_KEY_MAX:
            raise BusyError(f"{len(waiting)} retries of one message wait already")
        waiting.append(on_done)

    @property
    def pending_count(self) -> int:
        """Return how many proposals wait for a batch."""
        return len(self._pending)

    def in_flight_decision(self, half_queue_offset: int) -> Proposal | None:
        return self._decisions.get(half_queue_offset)

    def is_offset_in_flight(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a commit of this consumer offset is in flight, so that the state may have
        an older one than will count."""
        return self._offsets.newest((group, topic, queue_id)) is not None

    async def offset_commits_ended(self, group: str, topic: str, queue_id: int) -> None:
        """Wait until no commit of this consumer offset that was submitted before is in flight.

        Returns at once if there is none. Whether the commit was stored is to be read in the state.
        """
        proposal = self._offsets.newest((group, topic, queue_id))
        if proposal is not None:
            ended = asyncio.Event()
            proposal.waiting += (ended.set,)
            await ended.wait()

    # Proposing ---------------------------------------------------------------------------------

    def submit(self, proposal: Proposal) -> None:
        """Queue a proposal for the next batch. Raises BusyError if too many are pending."""
        if len(self._pending) >= self._limits.pending_max:
            raise BusyError(f"{len(self._pending)} proposals wait already")
        if self._pending_size >= self._limits.pending_size_max:
            raise BusyError(f"proposals of {self._pending_size} bytes wait already")
        proposal.size = sum([record.size for record in proposal.records])
        if proposal.commands:
            proposal.encoded = [encode_command(command) for command in proposal.commands]
            proposal.size += sum(map(len, proposal.encoded))
        self._pending_size += proposal.size
        self._pending.append(proposal)
        for record in proposal.records:
            if record.dedupe_key is not None:
                self._keys[record.dedupe_key] = record
        for command in proposal.commands:
            if isinstance(command, TopicCommand):
                self._topics.begin(command.name, command)
            elif isinstance(command, DeleteTopicCommand):
                self._topics.begin(command.name, command)
                self._deleting[command.name] = self._deleting.get(command.name, 0) + 1
            elif isinstance(command, OffsetCommand):
                queue = command.group, command.topic, command.queue_id
                self._offsets.begin(queue, proposal)
        if proposal.half_queue_offset is not None:
            self._decisions[proposal.half_queue_offset] = proposal
        self._schedule_flush()

    def lost_leadership(self) -> None:
        """Reject pending proposals. Those in flight end through the log, and count until then."""
        waiting = list(self._pending)
        self._pending.clear()
        self._pending_size = self._alone = 0
        for proposal in waiting:
            self._finish(proposal, None)

    def _schedule_flush(self) -> None:
        if (
            self._pending
            and not self._flush_scheduled
            and self._in_flight < self._limits.entries_in_flight_max
        ):
            self._flush_scheduled = True
            # While an entry is under way, also what other connections bring meanwhile.
            (self._turn.soon if self._in_flight else self._turn.at_end)(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if not self._pending or self._in_flight >= self._limits.entries_in_flight_max:
            return
        batch = self._take_batch()
        self._moved.clear()  # the log may reject it before it calls for the payload
        try:
            self._log.propose_then(partial(self._encode, batch), partial(self._on_result, batch))
        except NotLeaderError:
            for proposal in batch:
                self._finish(proposal, None)
            self.lost_leadership()
            return
        except ValueError as error:
            self._take_places_back()
            self._refused_by_log(batch, error)
            self._schedule_flush()
            return
        self._in_flight += 1
        if self._pending:
            self._schedule_flush()

    def _refused_by_log(self, batch: list[Proposal], error: ValueError) -> None:
        """Handle an entry that the log has no room for, or that is too large although its proposals
        passed the limits: one of them is at fault, and the others get entries of their own."""
        if len(batch) > 1 and not isinstance(error, LogFullError):
            _log.warning("%d proposals are no entry, each is proposed alone: %s", len(batch), error)
            self._pending.extendleft(reversed(batch))
            self._pending_size += sum([proposal.size for proposal in batch])
            self._alone += len(batch)
            return
        _log.error("%d proposals are not stored: %s", len(batch), error)
        for proposal in batch:
            self._finish(proposal, ProposalStatus.TRUNCATED)

    def _take_batch(self) -> list[Proposal]:
        limits, pending = self._limits, self._pending
        batch: list[Proposal] = []
        records = size = 0
        while pending:
            proposal = pending[0]
            if batch and (
                records + len(proposal.records) > limits.batch_records_max
                or size + proposal.size > limits.batch_size_max
            ):
                break
            batch.append(pending.popleft())
            records += len(proposal.records)
            size += proposal.size
            if proposal.ends_batch or self._alone:
                break
        self._alone = max(0, self._alone - 1)
        self._pending_size -= size
        return batch

    def _encode(self, batch: list[Proposal], slot: Slot) -> bytes:
        """Assign offsets and positions to a batch's records, and return its payload for `slot`."""
        store_ms = self._last_store_ms = max(
            self._clock_ms(), self._last_store_ms, self._state.store_timestamp_ms
        )
        self._take_places_back()  # those of a call for another slot: it did not fit there
        if slot.term != self._term:
            # Ready in a new term: what the terms before have stored is applied. Within a term
            # leadership may be lost and regained with entries in flight: they stay in force.
            self._next_offsets.clear()
            self._term = slot.term
        grouped: dict[tuple[str, int], list[PendingRecord]] = {}
        commands: list[bytes] = []
        for proposal in batch:
            for record in proposal.records:
                grouped.setdefault((record.topic, record.queue_id), []).append(record)
            commands += proposal.encoded
        runs = [self._place_run(key, records) for key, records in grouped.items()]
        at = slot.position + PAYLOAD_HEADER.size + len(encode_table(store_ms, runs, commands))
        pieces: list[bytes] = []
        pack_unit = UNIT.pack
        for run, records in zip(runs, grouped.values(), strict=True):
            units: list[bytes] = []
            if run.topic == SCHEDULE_TOPIC:
                for record in records:  # the time of delivery stands where tags codes do
                    record.tags_code = store_ms + delay_ms(run.queue_id)
            for record in records:
                pieces += record.encode_at(at, store_ms, self._store_host)
                units.append(pack_unit(at, record.size, record.tags_code))
                at += record.size
            run.units = b"".join(units)
        table = encode_table(store_ms, runs, commands)
        has_words, newest_born_ms = False, 0
        for records in grouped.values():
            for record in records:
                has_words = has_words or _KEYS in record.properties
                newest_born_ms = max(newest_born_ms, record.template.born_ms)
        births_ahead_ms = newest_born_ms + self._lead_ms() - store_ms
        header = encode_header(len(table), 0 if has_words else NO_WORDS, births_ahead_ms)
        return b"".join((header, table, *pieces))

    def _place_run(self, key: tuple[str, int], records: list[PendingRecord]) -> Run:
        first = self._next_offsets.get(key)
        if first is None:
            first = self._state.next_offset(*key)
        for queue_offset, record in enumerate(records, first):
            record.queue_offset = queue_offset
        self._moved[key] = self._next_offsets.get(key)
        self._next_offsets[key] = first + len(records)
        keys = [record.dedupe_key for record in records]
        return Run(
            key[0],
            key[1],
            first,
            bytes(UNIT_SIZE * len(records)),  # as long as the real units: sizes the table
            keys if any(keys) else None,
        )

    def _take_places_back(self) -> None:
        """Undo the offsets that the last `_encode` assigned: its entry never entered the log."""
        for key, before in self._moved.items():
            if before is None:
                del self._next_offsets[key]
            else:
                self._next_offsets[key] = before
        self._moved.clear()

    # Outcomes ----------------------------------------------------------------------------------

    def _on_result(self, batch: list[Proposal], result: ProposalResult) -> None:
        self._in_flight -= 1
        status = result.status
        for proposal in batch:
            self._finish(proposal, status)
        self._schedule_flush()

    def _deletion_ended(self, topic: str) -> None:
        self._deleting[topic] -= 1
        if not self._deleting[topic]:
            del self._deleting[topic]

    def _finish(self, proposal: Proposal, status: ProposalStatus | None) -> None:
        for record in proposal.records:
            key = record.dedupe_key
            if key is not None and self._keys.get(key) is record:
                del self._keys[key]
        for command in proposal.commands:
            if isinstance(command, TopicCommand | DeleteTopicCommand):
                self._topics.end(command.name, command)
                if isinstance(command, DeleteTopicCommand):
                    self._deletion_ended(command.name)
            elif isinstance(command, OffsetCommand):
                self._offsets.end((command.group, command.topic, command.queue_id), proposal)
        half = proposal.half_queue_offset
        if half is not None and self._decisions.get(half) is proposal:
            del self._decisions[half]
        proposal.on_done(status)
        for resume in proposal.waiting:
            resume()
        if self._waiting_for:
            for record in proposal.records:
                if record.dedupe_key is not None:
                    for on_done in self._waiting_for.pop(record.dedupe_key, ()):
                        on_done(status)
