"""The committed log as a simple model of the broker reads it: G2 to G5, entry by entry.

Place in the data path: every broker shows what it applies before it does. The first to apply an
entry adds it here; every later one must have the same entry. The model has no dedupe windows,
overlays or half tables: it decodes records and checks the guarantees. `timer_model`, `pop_model`,
`deletion_model` and the like have the rules of what they are named for.

G2: no UNIQ_KEY stands twice in user topics. G3: queue offsets are dense from 0 and never reused,
also by a topic that was deleted and created again, and a record is where its unit says. G4: a half
is decided once; a commit's final message is in the entry of its decision, a rollback's nowhere; the
half queue's offset never passes an undecided half (T10). G5: a delayed message is delivered once,
in order, not before its time; store timestamps never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.entry.levels import delay_ms
from broker.entry.payload import (
    UNIT,
    CheckCommand,
    ClearResetCommand,
    Command,
    DecideCommand,
    DeleteGroupCommand,
    DeleteTopicCommand,
    DeleteUserCommand,
    DeliverCommand,
    DeliverTimersCommand,
    DiscardCommand,
    GrantCommand,
    GroupCommand,
    LockCommand,
    OffsetCommand,
    Payload,
    RecallTimerCommand,
    ResetCommand,
    ResumeCommand,
    TopicCommand,
    UnlockCommand,
    UserCommand,
    decode_payload,
)
from broker.entry.pop_commands import (
    AckCommand,
    AckOrderCommand,
    ChangeInvisibleCommand,
    PopCommand,
    PopCommands,
    PopOrderCommand,
    ReviveCommand,
)
from broker.entry.topics import (
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TOPIC,
)
from chaos.sim.groups.models.answered_requests import AnsweredRequests
from chaos.sim.groups.models.deletion_model import DeletionModel
from chaos.sim.groups.models.lock_model import LockModel
from chaos.sim.groups.models.pop_model import PopModel, QueueKey
from chaos.sim.groups.models.registry_model import RegistryModel
from chaos.sim.groups.models.reset_model import ResetModel
from chaos.sim.groups.models.shape_model import ShapeModel
from chaos.sim.groups.models.stored import Stored, is_users, value_of
from chaos.sim.groups.models.timer_model import TimerModel
from chaos.sim.groups.models.true_time import TrueTime
from chaos.sim.machine.violation import Violation
from raft.messages import EntryKind, Index, NodeId, Term
from raft.replicated_log import CommittedEntry
from remoting.records.message import decode_record
from remoting.records.property_names import PropertyName

__all__ = ["LogModel"]

_WAITING_TOPICS: Final = frozenset({HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC})
_TRANSACTION_TOPICS: Final = frozenset({HALF_TOPIC, OP_TOPIC, TRANS_CHECK_MAX_TOPIC})


class LogModel:
    """The log of one broker group. Every method raises Violation."""

    def __init__(
        self,
        counts: dict[str, int],
        log_begin: Callable[[], int],
        true_time: TrueTime | None = None,
    ) -> None:
        """Build an empty model.

        `log_begin` returns the position below which some broker's log has no records. Without
        `true_time` nothing is judged by it.
        """
        self.true_time = true_time
        self._counts = counts
        self._entries: dict[Index, tuple[Term, int]] = {}  # term and chain
        self.last_index: Index = 0
        self.queues: dict[tuple[str, int], list[Stored]] = {}
        self.by_key: dict[str, Stored] = {}  # of user topics
        self.values: set[str] = set()  # stored anywhere, visible or not
        self.halves: list[Stored] = []
        self.decisions: dict[int, str] = {}  # by half queue offset
        self.offsets: dict[QueueKey, int] = {}
        self._delivered: dict[int, int] = {}  # next offset per schedule queue
        self._store_ms = 0
        self.floors: dict[tuple[str, int], int] = {}  # where queues of deleted topics ended
        # Every value that a consumer offset ever had, None where it was deleted.
        self.offset_history: dict[QueueKey, list[int | None]] = {}
        self.requests = AnsweredRequests(counts)
        self.resets = ResetModel(counts, (lambda: 0) if true_time is None else true_time.now_ms)
        self.locks = LockModel(counts)
        self.registry = RegistryModel()
        self.resumed: set[int] = set()  # copies of halves that were given up
        self.log_begin = log_begin
        self._topics: set[str] = set()  # that exist now
        self.timers = TimerModel(counts)
        self.deletions = DeletionModel()
        self.shapes = ShapeModel()
        self.pop = PopModel(
            self.queues, self.offsets, self.floors, counts, log_begin, true_time=true_time
        )

    def next_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), ()))

    def on_apply(self, node: NodeId, entries: Sequence[CommittedEntry]) -> None:
        """Check entries that a node is about to apply."""
        for entry in entries:
            index = entry.index
            known = self._entries.get(index)
            if known is not None:
                if known != (entry.term, entry.chain):
                    raise Violation("R10", f"{node} applies another entry at {index} than others")
                continue
            if index != self.last_index + 1:
                raise Violation("R10", f"{node} applies {index}, the last known {self.last_index}")
            self._entries[index] = (entry.term, entry.chain)
            self.last_index = index
            if entry.kind is EntryKind.DATA:
                self._add(entry, decode_payload(entry.payload))

    # --- one entry -----------------------------------------------------------------------------

    def _add(self, entry: CommittedEntry, payload: Payload) -> None:
        if payload.store_timestamp_ms < self._store_ms:
            raise Violation("G5", f"entry {entry.index} is stamped before the one before it")
        self._store_ms = payload.store_timestamp_ms
        if self.true_time is not None:
            self.true_time.on_stamp(self._store_ms)
        added: list[Stored] = []
        for run in payload.runs:
            queue = self.queues.setdefault((run.topic, run.queue_id), [])
            if run.first_queue_offset != len(queue):
                raise Violation(
                    "G3",
                    f"entry {entry.index} goes on at {run.first_queue_offset} in {run.topic}/"
                    f"{run.queue_id}, which ends at {len(queue)}",
                )
            for unit in UNIT.iter_unpack(run.units):
                added.append(self._stored(entry, unit, payload.store_timestamp_ms))
                self._check_place(added[-1], run.topic, run.queue_id, len(queue))
                queue.append(added[-1])
        for stored in added:
            self._on_stored(stored)
        for command in payload.commands:
            self._on_command(command, added, entry.index)

    def _stored(self, entry: CommittedEntry, unit: tuple[int, int, int], store_ms: int) -> Stored:
        position, size, code = unit
        start = position - entry.position
        record = decode_record(bytes(entry.payload[start : start + size]))
        properties = record.property_map()
        return Stored(
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            index=entry.index,
            position=position,
            uniq_key=properties.get(PropertyName.UNIQ_KEY, ""),
            value=value_of(record.body),
            store_ms=store_ms,
            real_topic=properties.get(PropertyName.REAL_TOPIC, ""),
            code=code,
            true_ms=0 if self.true_time is None else self.true_time.now_ms(),
        )

    @staticmethod
    def _check_place(stored: Stored, topic: str, queue_id: int, offset: int) -> None:
        place = (stored.topic, stored.queue_id, stored.queue_offset)
        if place != (topic, queue_id, offset):
            raise Violation(
                "G3", f"the record at {stored.position} says {place}, its unit {offset}"
            )

    def _on_stored(self, stored: Stored) -> None:
        self.values.add(stored.value)
        if stored.topic in _WAITING_TOPICS:
            self.deletions.on_waiting(stored)
        if stored.topic == HALF_TOPIC:
            self.halves.append(stored)
        elif stored.topic == TIMER_TOPIC:
            self.timers.on_timer(stored, stored.code)
        elif is_users(stored.topic) and stored.uniq_key:
            self.timers.on_visible(stored)
            self.deletions.on_visible(stored)
            before = self.by_key.setdefault(stored.uniq_key, stored)
            if before is not stored:
                raise Violation(
                    "G2",
                    f"{stored.value} stands at {before.place} and again at {stored.place}",
                )

    # --- commands ------------------------------------------------------------------------------

    def _on_command(self, command: Command, added: Sequence[Stored], index: Index) -> None:
        match command:
            case DecideCommand():
                self._decide(command.half_queue_offset, command.decision, added)
            case DiscardCommand():
                self._decide(command.half_queue_offset, "discard", added)
                self.requests.note("discard", command.half_queue_offset)
            case CheckCommand():
                self._counts["checks_counted"] += 1
            case DeliverCommand():
                self._deliver(command, added)
            case OffsetCommand():
                self._commit_offset(command)
                if command.topic == HALF_TOPIC:
                    self._check_progress(command.offset)
            case ResetCommand():
                self._reset(command)
            case ClearResetCommand():
                self.resets.clear(command)
            case DeliverTimersCommand():
                self.timers.deliver(command, added, self._is_taken)
            case RecallTimerCommand():
                self.timers.recall(command)
            case (
                PopCommand()
                | PopOrderCommand()
                | AckCommand()
                | AckOrderCommand()
                | ChangeInvisibleCommand()
                | ReviveCommand()
            ):
                self._pop(command, added)
            case LockCommand():
                self.locks.lock(command)
            case UnlockCommand():
                self.locks.unlock(command)
            case DeleteTopicCommand():
                self._delete_topic(command.name, index)
            case TopicCommand():
                self._topics.add(command.name)
                self.shapes.on_made(command)
                self.pop.make_topic(command.name)
            case (
                UserCommand()
                | DeleteUserCommand()
                | GrantCommand()
                | GroupCommand()
                | DeleteGroupCommand()
            ):
                self._register(command)
            case ResumeCommand():
                self._resume(command, added)
            case _:
                raise Violation("assert", f"no simulated client asks for {command}")

    def _commit_offset(self, command: OffsetCommand) -> None:
        key = (command.group, command.topic, command.queue_id)
        self.requests.note("offset", *key, command.offset)
        if key not in self.resets.pending:
            self._set_offset(key, command.offset)

    def _register(
        self,
        command: UserCommand | DeleteUserCommand | GrantCommand | GroupCommand | DeleteGroupCommand,
    ) -> None:
        match command:
            case UserCommand():
                self.requests.note("user", command.name, command.password)
            case GrantCommand():
                for row in command.entries:
                    self.requests.note("grant", command.user, row[1])
            case GroupCommand():
                self.requests.note("group", command.name, command.config["retryMaxTimes"])
            case DeleteGroupCommand():
                self.requests.note("delete_group", command.name, command.clean_offset)
                self._drop_group(command)
        self.registry.apply(command)
        self._counts["registry_changes"] += 1

    def _drop_group(self, command: DeleteGroupCommand) -> None:
        self.resets.drop(group=command.name)
        self.locks.drop(group=command.name)
        self.pop.drop_group(command.name)
        if command.clean_offset:
            self._drop_offsets(lambda key: key[0] == command.name)

    def _drop_offsets(self, unwanted: Callable[[QueueKey], bool]) -> None:
        for key in [key for key in self.offsets if unwanted(key)]:
            del self.offsets[key]
            self.offset_history.setdefault(key, []).append(None)

    def _resume(self, command: ResumeCommand, added: Sequence[Stored]) -> None:
        """Record a resumed half: the entry of the first such request holds it again."""
        copy = self.queues[TRANS_CHECK_MAX_TOPIC, 0][command.queue_offset]
        halves = [one for one in added if one.topic == HALF_TOPIC and one.value == copy.value]
        if command.queue_offset in self.resumed or len(halves) != 1:
            raise Violation("G4", f"{copy.value} is resumed again, or {len(halves)} times")
        self.resumed.add(command.queue_offset)
        self.requests.note("resume", command.queue_offset)
        self._counts["halves_resumed"] += 1

    def _pop(self, command: PopCommands, added: Sequence[Stored]) -> None:
        if isinstance(command, AckOrderCommand):
            key = (command.group, command.topic, command.queue_id)
            self.requests.note("ack_order", *key, command.offset, command.pop_ms)
        self.pop.apply(command, self._store_ms, added)

    def _reset(self, command: ResetCommand) -> None:
        self.resets.reset(command)
        for queue_id, offset in command.offsets:
            key = (command.group, command.topic, queue_id)
            if len(command.offsets) == 1:  # of one queue: a reset to a time names all
                self.requests.note("reset", *key, offset)
            self._set_offset(key, offset)
            self.pop.drop_queue(key)

    def _set_offset(self, key: QueueKey, offset: int) -> None:
        self.offsets[key] = offset
        self.offset_history.setdefault(key, []).append(offset)

    def _decide(self, half_offset: int, decision: str, added: Sequence[Stored]) -> None:
        before = self.decisions.setdefault(half_offset, decision)
        if before != decision or half_offset >= len(self.halves):
            raise Violation("G4", f"half {half_offset}: {decision} after {before}")
        half = self.halves[half_offset]
        finals = [one for one in added if one.uniq_key == half.uniq_key]
        is_there = any(one.topic not in _TRANSACTION_TOPICS for one in finals)  # perhaps it waits
        if self._is_taken(half) and decision == "commit":
            raise Violation("deletions", f"half {half_offset} is committed, its topic is deleted")
        if is_there != (decision == "commit"):
            raise Violation("G4", f"half {half_offset}: {decision}, final message: {is_there}")
        self._counts[f"decisions_{decision}"] += 1

    def _check_progress(self, offset: int) -> None:
        """Check that everything below the half queue's offset is decided for good."""
        passed = min(offset, len(self.halves))
        undecided = next((half for half in range(passed) if half not in self.decisions), None)
        if offset > len(self.halves) or undecided is not None:
            raise Violation(
                "T10", f"the half queue's offset is {offset}, half {undecided} is undecided"
            )

    def _deliver(self, command: DeliverCommand, added: Sequence[Stored]) -> None:
        queue_id = command.queue_id
        delivered = self._delivered.get(queue_id, 0)
        if command.first_offset != delivered:
            raise Violation(
                "G5",
                f"schedule queue {queue_id}: delivery of {command.first_offset}, "
                f"delivered up to {delivered}",
            )
        self._delivered[queue_id] = command.next_offset
        waiting = self.queues[SCHEDULE_TOPIC, queue_id][delivered : command.next_offset]
        by_key = {one.uniq_key: one for one in added if is_users(one.topic)}
        for delayed in waiting:
            final = by_key.get(delayed.uniq_key)
            if final is None and self._is_taken(delayed):
                continue
            if final is None:
                raise Violation("G5", f"{delayed.value} is delivered, and not in the entry")
            if final.store_ms < delayed.store_ms + delay_ms(queue_id):
                raise Violation("G5", f"{delayed.value} is delivered before its time")
        self._counts["delayed_deliveries"] += len(waiting)

    def _is_taken(self, waiting: Stored) -> bool:
        """Return whether the message's topic was deleted: it is taken out, and not delivered."""
        is_taken = self.deletions.took(waiting)
        self._counts["waiting_deleted"] += is_taken
        return is_taken

    def _delete_topic(self, name: str, index: Index) -> None:
        """Delete the topic, with what groups popped of it and would pop again."""
        groups = {group for group, topic, _ in self.offsets if topic == name}
        retries = {f"%RETRY%{group}_{name}" for group in groups} & self._topics
        for gone in (name, *sorted(retries)):
            self._topics.discard(gone)
            for key, queue in self.queues.items():
                if key[0] == gone:
                    self.floors[key] = len(queue)
            for of_group in [key for key in self.offsets if key[1] == gone]:
                del self.offsets[of_group]
                self.offset_history.setdefault(of_group, []).append(None)
            self.resets.drop(topic=gone)
            self.locks.drop(topic=gone)
            self.pop.drop_topic(gone)
            self.deletions.on_deleted(gone, index)
            self.shapes.on_deleted(gone)
        self._counts["topics_deleted"] += 1

    def undelivered(self) -> int:
        """Return the number of delayed messages that still wait."""
        return len(self.timers.waiting) + sum(
            len(queue) - self._delivered.get(queue_id, 0)
            for (topic, queue_id), queue in self.queues.items()
            if topic == SCHEDULE_TOPIC
        )

    def undecided(self) -> int:
        return len(self.halves) - len(self.decisions)
