"""Replicated state of a broker group, which every replica computes from the committed log.

Place in the data path: `broker.queues.state_machine` feeds it each committed payload, in order.
Pure: no clock, no randomness, no IO; store timestamps come from the log, stamped once by the
leader.

Invariants: queue offsets of a queue are dense from 0 (promise G3); topics, groups, consumer
offsets, transactions and the dedupe window change only here (promise G5); two replicas that have
applied the same entries are equal, whether they applied all of them or began with a snapshot
(`broker.state.state_image`).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, assert_never

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
    Run,
    TopicCommand,
    UnlockCommand,
    UserCommand,
)
from broker.entry.pop_commands import (
    AckCommand,
    AckOrderCommand,
    ChangeInvisibleCommand,
    PopCommand,
    PopOrderCommand,
    RequestModeCommand,
    ReviveCommand,
)
from broker.entry.state_part import StatePart
from broker.entry.topics import HALF_TOPIC, TIMER_TOPIC, Topic
from broker.state.dedupe import DedupeWindow
from broker.state.half_table import Half, HalfTable
from broker.state.offset_resets import OffsetResets
from broker.state.pop_state import PopState
from broker.state.queue_offsets import QueueOffsets
from broker.state.queue_owners import QueueOwners
from broker.state.resumed import ResumedHalves
from broker.state.state_image import StateImage
from broker.state.time_marks import TimeMarks
from broker.state.timer_table import Timer, TimerTable
from broker.state.tombstone_offsets import TombstoneOffsets
from broker.state.topic_deletions import TopicDeletions
from broker.state.user_table import UserTable
from remoting.protocol.group_topics import pop_retry_topic

__all__ = ["BrokerState", "StateLimits"]

_UNIT_POSITION = struct.Struct(">Q12x")  # the first field of a ConsumeQueue unit
assert _UNIT_POSITION.size == UNIT.size


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLimits:
    """Limits of the replicated state; every replica of a group must have the same."""

    dedupe_window_ms: int = 600_000
    dedupe_keys_max: int = 1_000_000
    dedupe_evicted_keys_max: int = 1_000_000
    decided_max: int = 65_536
    topics_max: int = 10_000
    groups_max: int = 10_000
    consumer_offsets_max: int = 1_000_000
    timers_max: int = 400_000
    halves_max: int = 1_000_000  # undecided; each takes memory until somebody decides


class BrokerState:
    def __init__(self, limits: StateLimits, topics: dict[str, Topic]) -> None:
        self.limits = limits
        self.topics: dict[str, Topic] = dict(topics)
        self.groups: dict[str, dict[str, Any]] = {}
        self.next_offsets: QueueOffsets[tuple[str, int]] = QueueOffsets()
        self.consumer_offsets: QueueOffsets[tuple[str, str, int]] = QueueOffsets()
        self.delay_offsets: dict[int, int] = {}  # schedule queue -> next offset to deliver
        self.messages = self._window()  # UNIQ_KEYs of user topics
        self.half_keys = self._window()  # UNIQ_KEYs of half messages: a scope of their own
        self.halves = HalfTable(decided_max=limits.decided_max)
        self.time_marks = TimeMarks()
        self.timers = TimerTable()
        self.resets = OffsetResets()
        self.floors = TombstoneOffsets()
        self.deletions = TopicDeletions()
        self.resumed = ResumedHalves()
        self.queue_owners = QueueOwners()
        self.pop = PopState()
        self.users = UserTable()
        self.store_timestamp_ms = 0
        self.topics_version = 0  # counts changes of `topics`
        self.topics_changed_ms = 0  # store timestamp of the last one

    def parts(self) -> dict[str, StatePart]:
        """Return the parts with rows of their own in a snapshot, by name."""
        return {
            "timers": self.timers,
            "resets": self.resets,
            "floors": self.floors,
            "deletions": self.deletions,
            "owners": self.queue_owners,
            "pop": self.pop,
            "resumed": self.resumed,
            "users": self.users,
        }

    def _window(self) -> DedupeWindow:
        return DedupeWindow(
            window_ms=self.limits.dedupe_window_ms,
            keys_max=self.limits.dedupe_keys_max,
            evicted_keys_max=self.limits.dedupe_evicted_keys_max,
        )

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue's max offset, which the next message gets."""
        return self.next_offsets.get((topic, queue_id), 0)

    def apply(self, payload: Payload, position: int) -> Collection[str]:
        """Apply one committed payload, which stands at `position`: its runs, then its commands.

        Returns the names of the topics that it deleted.
        """
        now_ms = payload.store_timestamp_ms
        assert now_ms >= self.store_timestamp_ms, "store timestamps never go back"
        self.time_marks.note(position, now_ms, before_ms=self.store_timestamp_ms)
        self.store_timestamp_ms = now_ms
        for run in payload.runs:
            self._apply_run(run, now_ms, now_ms + payload.births_ahead_ms)
        deleted: set[str] = set()
        for command in payload.commands:
            if isinstance(command, DeleteTopicCommand):
                deleted |= {*self._delete_topic(command.name, _end_of(payload, position))}
            else:
                self._apply_command(command)
        return deleted

    def _apply_run(self, run: Run, now_ms: int, newest_born_ms: int) -> None:
        key = (run.topic, run.queue_id)
        next_offset = self.next_offsets.get(key, 0)
        assert run.first_queue_offset == next_offset, (
            f"run of {run.topic}/{run.queue_id} starts at {run.first_queue_offset}, "
            f"the queue ends at {next_offset}"
        )
        self.next_offsets[key] = next_offset + run.count
        if run.topic == HALF_TOPIC:
            for at, (position, size, _) in enumerate(UNIT.iter_unpack(run.units)):
                self.halves.add(
                    Half(
                        queue_offset=next_offset + at,
                        position=position,
                        size=size,
                        stored_ms=now_ms,
                    )
                )
        elif run.topic == TIMER_TOPIC:
            for at, (position, size, deliver_ms) in enumerate(UNIT.iter_unpack(run.units)):
                self.timers.add(next_offset + at, Timer(deliver_ms, position, size))
        if run.uniq_keys is not None:
            window = self.half_keys if run.topic == HALF_TOPIC else self.messages
            window.add(run.uniq_keys, _positions(run.units), now_ms, newest_born_ms)

    def _apply_command(self, command: Command) -> None:
        match command:
            case DeleteTopicCommand():
                raise AssertionError("deletions need their place")
            case OffsetCommand():
                key = (command.group, command.topic, command.queue_id)
                if not self.resets or self.resets.get(*key) is None:
                    self.consumer_offsets[key] = command.offset
            case DecideCommand():
                assert command.decision in {"commit", "rollback"}
                self.halves.decide(
                    command.half_queue_offset,
                    "commit" if command.decision == "commit" else "rollback",
                )
            case CheckCommand():
                self.halves.check(command.half_queue_offset)
            case DiscardCommand():
                self.halves.decide(command.half_queue_offset, "discard")
            case DeliverCommand():
                delivered = self.delay_offsets.get(command.queue_id, 0)
                assert command.first_offset == delivered < command.next_offset, (
                    f"schedule queue {command.queue_id}: delivery of {command.first_offset}, "
                    f"delivered up to {delivered}"
                )
                self.delay_offsets[command.queue_id] = command.next_offset
            case DeliverTimersCommand():
                self.timers.deliver(command.queue_offsets)
            case RecallTimerCommand():
                self.timers.recall(command.queue_offset)
            case TopicCommand():
                self.topics[command.name] = Topic.of_command(command)
                self.topics_version += 1
                self.topics_changed_ms = self.store_timestamp_ms
            case GroupCommand():
                self.groups[command.name] = dict(command.config)
            case DeleteGroupCommand():
                self._delete_group(command)
            case ResetCommand():
                for queue_id, offset in command.offsets:
                    self.resets.set(command.group, command.topic, queue_id, offset)
                    self.consumer_offsets[command.group, command.topic, queue_id] = offset
                    self.pop.drop_queue((command.group, command.topic, queue_id))
            case ResumeCommand():
                self.resumed.add(command.queue_offset)
            case ClearResetCommand():
                self.resets.clear(command.group, command.topic, command.queue_id, command.offset)
            case PopCommand() | PopOrderCommand() if self._is_below_floor(command):
                pass  # in flight when the topic was deleted, of a group without an offset there
            case (
                PopCommand()
                | PopOrderCommand()
                | AckCommand()
                | AckOrderCommand()
                | ChangeInvisibleCommand()
                | ReviveCommand()
                | RequestModeCommand()
            ):
                self.pop.apply(command, self.consumer_offsets)
            case LockCommand() | UnlockCommand():
                act = (
                    self.queue_owners.lock
                    if isinstance(command, LockCommand)
                    else self.queue_owners.unlock
                )
                queues = [(topic, queue_id) for topic, queue_id in command.queues]
                act(command.group, command.client_id, queues, command.claim)
            case UserCommand() | DeleteUserCommand() | GrantCommand():
                self.users.apply(command)
            case _:
                assert_never(command)

    def _is_below_floor(self, command: PopCommand | PopOrderCommand) -> bool:
        """Whether a pop is of messages below a floor; they never lie on both sides of one, since
        deletions are between entries."""
        end = command.next_offset if isinstance(command, PopCommand) else command.start + 1
        return end <= self.floors.get(command.topic, command.queue_id)

    def _delete_topic(self, name: str, end: int) -> Collection[str]:
        """Delete a topic, and the retry topics of groups that popped its messages. Returns the
        names of all of them."""
        names = {name, *self._pop_retry_topics(name)}
        for one in sorted(names):
            if self.topics.pop(one, None) is not None:
                self.deletions.note(one, end)
        self.topics_version += 1
        self.topics_changed_ms = self.store_timestamp_ms
        self.floors.topics_deleted(names, self.next_offsets)
        self.resets.drop_topics(names)
        self.queue_owners.drop_topics(names)
        self.pop.drop_topics(names)
        for key in self.consumer_offsets.of_topics(names):
            del self.consumer_offsets[key]
        return names

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """Return a topic's POP retry topics, except those that are a pulling group's, too."""
        groups = {group for group, _, _ in self.consumer_offsets.of_topics([topic])}
        names = {pop_retry_topic(topic, group): group for group in groups}
        shared = {
            name
            for group, name, _ in self.consumer_offsets.of_topics(names)
            if group != names[name]
        }
        return sorted(
            name
            for name, group in names.items()
            if name in self.topics and name not in shared and f"{group}_{topic}" not in self.groups
        )

    def _delete_group(self, command: DeleteGroupCommand) -> None:
        self.groups.pop(command.name, None)
        self.resets.drop_group(command.name)
        self.queue_owners.drop_group(command.name)
        if command.clean_offset:
            # With offsets that stay stays what the group has popped behind them: it comes again.
            self.pop.drop_group(command.name)
            for key in [key for key in self.consumer_offsets if key[0] == command.name]:
                del self.consumer_offsets[key]

    def capture(self) -> StateImage:
        """Return an image of the state: shallow copies of what changes, the rest is shared."""
        return StateImage(
            store_timestamp_ms=self.store_timestamp_ms,
            topics_version=self.topics_version,
            topics_changed_ms=self.topics_changed_ms,
            topics=dict(self.topics),
            groups=dict(self.groups),
            next_offsets=dict(self.next_offsets),
            consumer_offsets=dict(self.consumer_offsets),
            delay_offsets=dict(self.delay_offsets),
            time_marks=self.time_marks.capture(),
            halves=self.halves.capture(),
            messages=self.messages.capture(),
            half_keys=self.half_keys.capture(),
            parts={name: part.capture() for name, part in self.parts().items()},
        )

    def restore(self, image: StateImage) -> None:
        """Replace the state by a captured one. Raises ValueError if the image is invalid; the
        state is undefined then."""
        self.topics = dict(image.topics)
        self.groups = dict(image.groups)
        self.next_offsets = QueueOffsets(image.next_offsets)
        self.consumer_offsets = QueueOffsets(image.consumer_offsets)
        self.delay_offsets = dict(image.delay_offsets)
        self.time_marks.restore(*image.time_marks)
        self.halves.restore(image.halves)
        self.messages.restore(image.messages)
        self.half_keys.restore(image.half_keys)
        self.store_timestamp_ms = image.store_timestamp_ms
        self.topics_version = image.topics_version
        self.topics_changed_ms = image.topics_changed_ms
        parts = self.parts()
        if not image.parts.keys() <= parts.keys():
            raise ValueError(f"a state with sections that are not known here: {[*image.parts]}")
        for name, part in parts.items():
            try:
                part.restore(image.parts.get(name, ()))
            except TypeError as error:
                raise ValueError(f"no rows of {name}: {error!r}") from error

    def become(self, other: BrokerState) -> None:
        """Replace this state by `other`, which must not be used any more: in constant time, and for
        all that hold a reference to this state."""
        assert other.limits == self.limits, "replicas of a group have the same limits"
        vars(self).update(vars(other))


def _end_of(payload: Payload, position: int) -> int:
    """Return the position behind the entry's records: all in a deletion's entry came before it."""
    end = position
    for run in payload.runs:
        last, size, _ = UNIT.unpack_from(run.units, len(run.units) - UNIT.size)
        end = max(end, last + size)
    return end


def _positions(units: bytes) -> Iterable[int]:
    return [position for (position,) in _UNIT_POSITION.iter_unpack(units)]
