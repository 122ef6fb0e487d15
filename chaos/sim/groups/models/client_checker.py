"""Compare clients' answers with the committed log: G1, G6, G7 and the reads.

Place in the data path: `clients` report here each operation as it begins and ends, `cluster` gets
the verdict at the end of a seed.

G1: an acknowledged message is in the log where the answer said. G7: a send that ended as a definite
failure is nowhere in the log; one of unknown outcome may be there once. An acknowledged decision is
the one in the log. G6: a max offset is not below what was acknowledged before the query, a fetched
consumer offset is one that the log had since the query. A read shows what the committed log has at
that place, and nothing uncommitted. G5: the answer of a recall, a pop, an acknowledgement or a
postponed message is in the committed log when the client gets it. An acknowledged deletion has
taken what was acknowledged before it was requested.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from chaos.sim.groups.models.log_model import LogModel
from chaos.sim.groups.models.pop_model import QueueKey
from chaos.sim.groups.models.stored import Stored, value_of
from chaos.sim.machine.violation import Violation
from client.errors import ClientError, MaybeStoredError

__all__ = ["ClientChecker", "Recall", "Value"]


class Recall(Enum):
    """How the recall of a delayed message ended, as far as its sender knows."""

    NONE = "none"
    UNKNOWN = "unknown"
    ANSWERED = "answered"
    REFUSED = "refused"


@dataclass(slots=True, kw_only=True)
class Value:
    """One message of a sender, with all its attempts."""

    name: str
    uniq_key: str | None = None
    is_half: bool = False
    is_delayed: bool = False
    acknowledged: tuple[str, int, int] | None = None  # topic, queue, offset
    unknown: bool = False  # an attempt of unknown outcome
    attempts: int = 0
    not_before_ms: int = 0  # the requested time of delivery; 0: none
    begun_ms: int = 0  # by the true time
    acknowledged_ms: int = 0  # likewise; it may have been sent again long after it was begun
    delay_ms: int | None = None  # the requested delay, from when it is stored
    recall: Recall = Recall.NONE


class ClientChecker:
    """The answers of one broker group. Methods raise Violation."""

    def __init__(self, log: LogModel, counts: dict[str, int]) -> None:
        self._log = log
        self.requests = log.requests
        self.resets = log.resets
        self.shapes = log.shapes
        self.locks = log.locks
        self.registry = log.registry
        self._counts = counts
        self.values: dict[str, Value] = {}
        self.local: dict[str, str] = {}  # value of a half -> its producer's durable decision
        self.decisions: dict[str, str] = {}  # value of a half -> decision that was acknowledged
        self._ends: dict[tuple[str, int], int] = {}  # past the last acknowledged offset
        self._given: set[tuple[QueueKey, int, int]] = set()  # popped messages, with pop times
        self.acknowledged_count = 0

    # --- sends ---------------------------------------------------------------------------------

    def new_value(self, *, is_half: bool = False, is_delayed: bool = False) -> Value:
        value = Value(name=f"v{len(self.values)}", is_half=is_half, is_delayed=is_delayed)
        self.values[value.name] = value
        if self._log.true_time is not None:
            value.begun_ms = self._log.true_time.now_ms()
        return value

    def on_acknowledged(self, value: Value, topic: str, queue_id: int, offset: int) -> None:
        self._counts["sends_acknowledged"] += 1
        self.acknowledged_count += 1
        before = value.acknowledged
        if before is not None and before != (topic, queue_id, offset):
            raise Violation("G2", f"{value.name} is acknowledged at {before} and at {offset}")
        value.acknowledged = (topic, queue_id, offset)
        if self._log.true_time is not None and before is None:
            value.acknowledged_ms = self._log.true_time.now_ms()
        if not value.is_half and not value.is_delayed:
            key = (topic, queue_id)
            self._ends[key] = max(self._ends.get(key, 0), offset + 1)
            self._check_stored(value)

    def on_failed(self, value: Value, *, definite: bool) -> None:
        self._counts["sends_refused" if definite else "sends_unknown"] += 1
        if not definite:
            value.unknown = True

    def check_refusal(self, values: Sequence[Value], error: ClientError) -> None:
        """Check a refused attempt: a first send must not be refused as a repetition.

        That holds whatever clocks say.
        """
        if isinstance(error, MaybeStoredError) and all(
            value.attempts == 1 and value.name not in self._log.values for value in values
        ):
            raise Violation("time", f"{values[0].name} is refused as sent before: {error}")

    def is_stored(self, value: Value) -> bool:
        """Return whether an earlier attempt is committed, as far as any node has applied."""
        return value.name in self._log.values

    def on_deduplicated(self) -> None:
        """Count a retry of a stored message that was answered with the first place."""
        self._counts["sends_deduplicated"] += 1

    def _check_stored(self, value: Value) -> None:
        assert value.acknowledged is not None
        topic, queue_id, offset = value.acknowledged
        queue = self._log.queues.get((topic, queue_id), [])
        if offset >= len(queue) or queue[offset].value != value.name:
            there = queue[offset].value if offset < len(queue) else "nothing"
            raise Violation(
                "G1",
                f"{value.name} is acknowledged at {topic}/{queue_id}/{offset}, where the "
                f"committed log has {there}",
            )

    # --- recalls -------------------------------------------------------------------------------

    def on_recalling(self, value: Value) -> None:
        value.recall = Recall.UNKNOWN  # until its outcome is known: the sender may die before

    def on_recalled(self, value: Value) -> None:
        self._counts["recalls_told"] += 1
        value.recall = Recall.ANSWERED
        if not self._log.timers.is_recalled(value.name):
            raise Violation("G5", f"{value.name} is answered as recalled, the log has no recall")

    def on_recall_failed(self, value: Value, *, definite: bool) -> None:
        self._counts["recalls_failed"] += 1
        if definite:
            value.recall = Recall.REFUSED

    # --- POP -----------------------------------------------------------------------------------

    def on_popped(self, key: QueueKey, offset: int, pop_ms: int, value: str) -> None:
        """Check a message that a consumer received under this handle."""
        _, topic, queue_id = key
        queue = self._log.queues.get((topic, queue_id), [])
        if offset >= len(queue) or queue[offset].value != value:
            raise Violation("reads", f"{value} is popped at {topic}/{queue_id}/{offset}, not there")
        if not self._log.pop.has_held(key, offset, pop_ms):
            raise Violation("G5", f"{key}: {value} is given at {offset}, the log has no such pop")
        if (key, offset, pop_ms) in self._given:
            raise Violation("G5", f"{key}: {value} at {offset} is given to two")
        self._given.add((key, offset, pop_ms))

    def on_postponed(self, key: QueueKey, offset: int, pop_ms: int) -> None:
        """Check the answer that the message will become visible later, under a new handle."""
        if not self._log.pop.has_held(key, offset, pop_ms):
            raise Violation("G5", f"{key}: {offset} is answered as postponed, the log has it not")

    def on_pop_acknowledged(self, key: QueueKey, offset: int, pop_ms: int) -> None:
        """Check the answer that a message is acknowledged, or is no longer this consumer's."""
        self._counts["acknowledgements_told"] += 1
        if self._log.pop.holds(key, offset, pop_ms):
            raise Violation("G5", f"{key}: {offset} is acknowledged, and still held")

    def on_popped_in_order(self, key: QueueKey, offset: int, pop_ms: int, value: str) -> None:
        """Check a message received in order; a repeated attempt gets the same message again."""
        _, topic, queue_id = key
        self.on_read(topic, queue_id, offset, value)
        if not self._log.pop.order.has_given(key, offset, pop_ms):
            raise Violation("G5", f"{key}: {value} is given at {offset}, the log has no such pop")

    def on_order_acknowledged(self, key: QueueKey, offset: int, pop_ms: int) -> None:
        if self._log.pop.order.is_open(key, offset, pop_ms):
            raise Violation("G5", f"{key}: {offset} is acknowledged, and still held")

    # --- deletions -----------------------------------------------------------------------------

    def acknowledged_ends(self, topic: str) -> dict[tuple[str, int], int]:
        """Return the ends of queues that a deletion starting now must cover."""
        return {key: end for key, end in self._ends.items() if key[0] == topic}

    def on_deleted(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Check an acknowledged deletion; `ends` were acknowledged when it began."""
        self._counts["deletions_told"] += 1
        for key, end in ends.items():
            floor = self._log.floors.get(key, 0)
            if floor < end:
                raise Violation(
                    "G3", f"{key} is deleted, its floor is {floor}, {end} were acknowledged before"
                )

    def on_min_offset(self, topic: str, queue_id: int, offset: int) -> None:
        """Check a min offset, queried when nobody deletes any more."""
        floor = self._log.floors.get((topic, queue_id), 0)
        if offset < floor:
            raise Violation("G3", f"{topic}/{queue_id} begins at {offset}, its floor is {floor}")

    # --- reads ---------------------------------------------------------------------------------

    def on_pulled(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        messages: Sequence[tuple[int, bytes]],
        next_offset: int,
        *,
        is_moved: bool,
    ) -> None:
        """Check a pull of everything from `offset`: none is skipped, in a pull or between two.

        `messages`: rows of offset and body.
        """
        if is_moved:
            return
        expected = offset
        for place, body in messages:
            if place != expected:
                raise Violation(
                    "reads", f"a pull of {topic}/{queue_id} from {offset} brings {place} next"
                )
            self.on_read(topic, queue_id, place, value_of(body))
            expected += 1
        end = self._log.next_offset(topic, queue_id)
        if next_offset < expected or (next_offset > expected and (messages or next_offset > end)):
            raise Violation(
                "reads",
                f"a pull of {topic}/{queue_id} from {offset} brings {len(messages)} and sends on "
                f"to {next_offset}",
            )

    def on_read(self, topic: str, queue_id: int, offset: int, value: str) -> None:
        self._counts["messages_read"] += 1
        queue = self._log.queues.get((topic, queue_id), [])
        if offset >= len(queue):
            raise Violation("reads", f"{value} is read at {topic}/{queue_id}/{offset}, uncommitted")
        if queue[offset].value != value:
            raise Violation(
                "reads",
                f"{value} is read at {topic}/{queue_id}/{offset}, committed there is "
                f"{queue[offset].value}",
            )

    @contextlib.contextmanager
    def held(self, suspend_ms: int) -> Iterator[None]:
        """Wrap a pull that the broker may hold for `suspend_ms`: if calm, it ends by then."""
        times = self._log.true_time
        was_calm = times is not None and times.is_calm
        begun_ms = times.now_ms() if times is not None else 0
        try:
            yield
        finally:
            if times is not None and was_calm:
                late_ms = times.now_ms() - begun_ms - suspend_ms
                if late_ms > times.late_ms_max() + suspend_ms // 5:
                    raise Violation("time", f"a pull is held {late_ms} ms longer than it asked")

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return the current end of the committed queue."""
        return self._log.next_offset(topic, queue_id)

    def max_offset_floor(self, topic: str, queue_id: int) -> int:
        """Return the lower bound of a max offset queried now."""
        return self._ends.get((topic, queue_id), 0)

    def on_max_offset(self, topic: str, queue_id: int, offset: int, floor: int) -> None:
        self._counts["max_offsets_read"] += 1
        if not floor <= offset <= self._log.next_offset(topic, queue_id):
            raise Violation(
                "G6",
                f"max offset of {topic}/{queue_id} is answered as {offset}; {floor} were "
                f"acknowledged before, {self._log.next_offset(topic, queue_id)} are committed",
            )

    # --- consumer offsets ----------------------------------------------------------------------

    def begin_fetch(self, key: QueueKey) -> int:
        """Note that a group's offset is queried now; pass the result to `on_fetched`."""
        return len(self._log.offset_history.get(key, ()))

    def on_fetched(self, key: QueueKey, offset: int | None, since: int) -> None:
        """Check that the log had this offset at some time since the query (run format, S5)."""
        self._counts["offsets_fetched"] += 1
        history = [None, *self._log.offset_history.get(key, ())]
        if offset not in history[since:]:
            raise Violation("G5", f"{key}: {offset} is fetched, possible are {history[since:]}")

    def on_overtaken(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record that a later query on the same connection did not show this commit."""
        self._counts["oneway_commits_lost"] += 1
        self.requests.overtaken("offset", group, topic, queue_id, offset)

    # --- administration ------------------------------------------------------------------------

    def on_user_deleted(self, name: str) -> None:
        """Check the answer to the user's only administrator that there is no such user."""
        if self.registry.knows_user(name):
            raise Violation("answered", f"user {name} is answered as deleted, and is in the log")

    def stored_in(self, topic: str) -> Sequence[Stored]:
        """Return the messages in queue 0 of a topic that every broker can still read."""
        begin = self._log.log_begin()
        return [one for one in self._log.queues.get((topic, 0), ()) if one.position >= begin]

    # --- the end -------------------------------------------------------------------------------

    def check_final(self) -> None:
        """Compare every answer with the committed log. Raises Violation naming the promise.

        What was acknowledged must be in the log, what failed must not be, and nothing that nobody
        sent; a send of unknown outcome may be either. Call it once everything is healed and all
        nodes have applied the whole log.
        """
        self.requests.check_final()
        places = {stored.value: stored for stored in self._log.by_key.values()}
        halves = {stored.value: stored for stored in self._log.halves}
        for value in self.values.values():
            if value.is_half:
                self._check_half(value, halves.get(value.name) is not None, places)
            elif value.acknowledged is not None:
                if not value.is_delayed:
                    self._check_stored(value)
                else:
                    self._check_delayed(value, places)
            elif value.attempts and not value.unknown and value.name in places:
                raise Violation("G7", f"{value.name} surely failed, and is in the log")
        sent = self.values.keys()
        for name in places:
            if name not in sent:
                raise Violation("G1", f"{name} is in the log, and nobody sent it")

    def _check_delayed(self, value: Value, places: Mapping[str, Stored]) -> None:
        """Check an acknowledged delayed message."""
        name = value.name
        is_recalled = self._log.timers.is_recalled(name)
        if is_recalled and value.recall in {Recall.NONE, Recall.REFUSED}:
            raise Violation("G5", f"{name} is recalled, its recall is {value.recall.value}")
        stored = places.get(name)
        if stored is None and not is_recalled and self._log.deletions.has_taken(name):
            return
        if stored is None and not is_recalled:
            raise Violation("G1", f"{name} was acknowledged and is never delivered")
        if stored is not None and value.recall is Recall.ANSWERED:
            raise Violation("G5", f"{name} is delivered, its recall was acknowledged")
        if stored is not None and stored.store_ms < value.not_before_ms:
            raise Violation(
                "G5", f"{name} is delivered {value.not_before_ms - stored.store_ms} ms too early"
            )
        times = self._log.true_time
        if stored is not None and times is not None:
            due_ms = value.not_before_ms or value.begun_ms + (value.delay_ms or 0)
            times.check_early(name, due_ms, stored.true_ms, delay_ms=value.delay_ms)
            due_ms = max(due_ms, value.acknowledged_ms + (value.delay_ms or 0))
            times.check_late(name, due_ms, stored.true_ms)

    def _has_waited_in_vain(self, name: str) -> bool:
        """Return whether a committed half's message still waited when its topic was deleted."""
        is_committed = any(
            self._log.decisions.get(half.queue_offset) == "commit"
            for half in self._log.halves
            if half.value == name
        )
        return is_committed and self._log.deletions.has_taken(name)

    def _check_half(self, value: Value, is_stored: bool, places: Mapping[str, Stored]) -> None:
        name = value.name
        if value.acknowledged is not None and not is_stored:
            raise Violation("G1", f"half {name} was acknowledged and is not in the log")
        if value.attempts and not value.unknown and value.acknowledged is None and is_stored:
            raise Violation("G7", f"half {name} surely failed, and is in the log")
        decision, local = self.decisions.get(name), self.local.get(name)
        is_final = name in places
        if decision == "commit" and not is_final and not self._has_waited_in_vain(name):
            raise Violation("G4", f"the commit of {name} was acknowledged and is not in the log")
        if decision == "rollback" and is_final:
            raise Violation("G4", f"the rollback of {name} was acknowledged, and it is visible")
        if is_final and local != "commit":
            raise Violation("G4", f"{name} is visible, its producer decided {local}")
