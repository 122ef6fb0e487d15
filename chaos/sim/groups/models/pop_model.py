"""Holders of popped messages, by the committed log.

Place in the data path: `log_model` hands it POP's commands and the records of their entries;
`client_checker` queries it about consumers' answers. It does not read the broker's table.

Rules: a group pops a queue's messages one after the other, skips none that its log still has, and
pops none twice; an acknowledged message is never popped again, in whichever topic its copy stands;
a holding that is over ends in the entry that stores the message again, not before its time by the
entry's stamp; a command that names another holding changes nothing. What is popped in order has a
model of its own (`order_model`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from broker.entry.pop_commands import (
    AckCommand,
    AckOrderCommand,
    ChangeInvisibleCommand,
    PopCommand,
    PopCommands,
    PopOrderCommand,
    ReviveCommand,
)
from chaos.sim.groups.models.order_model import OrderModel
from chaos.sim.groups.models.stored import Stored, is_again
from chaos.sim.groups.models.true_time import TrueTime
from chaos.sim.machine.violation import Violation

__all__ = ["HeldMessage", "PopModel", "QueueKey"]

QueueKey: TypeAlias = tuple[str, str, int]  # group, topic, queue id


class HeldMessage(NamedTuple):
    pop_ms: int
    visible_ms: int
    due_ms: int = 0  # by the true time, about when it is visible again


class PopModel:
    """The popped messages of one broker group.

    `log_begin` returns the position below which some log has no records. Methods raise Violation.
    """

    def __init__(
        self,
        queues: Mapping[tuple[str, int], Sequence[Stored]],
        offsets: dict[QueueKey, int],
        floors: Mapping[tuple[str, int], int],
        counts: dict[str, int],
        log_begin: Callable[[], int],
        *,
        true_time: TrueTime | None = None,
    ) -> None:
        self._true_time = true_time
        self._queues = queues
        self._offsets = offsets
        self._floors = floors
        self._counts = counts
        self._log_begin = log_begin
        self.order = OrderModel(queues, offsets, floors, counts, log_begin)
        self._held: dict[QueueKey, dict[int, HeldMessage]] = {}
        self._taken: set[tuple[QueueKey, int]] = set()
        self._holdings: set[tuple[QueueKey, int, int]] = set()  # all there ever were: with pop time
        self._done: set[tuple[str, str]] = set()  # group and value
        self._deleted: set[str] = set()  # topics, until they are created again
        # Holdings that ended with their topic: a retry of them may have been under way.
        self._dropped: set[tuple[QueueKey, int, int]] = set()

    def rows(self) -> Iterator[tuple[str, str, int, int, int, int]]:
        """Yield current holdings: group, topic, queue id, offset, pop time, visible again at."""
        for key, held in self._held.items():
            for offset, message in held.items():
                yield (*key, offset, message.pop_ms, message.visible_ms)

    def has_held(self, key: QueueKey, offset: int, pop_ms: int) -> bool:
        """Return whether this holding is or was committed."""
        return (key, offset, pop_ms) in self._holdings

    def holds(self, key: QueueKey, offset: int, pop_ms: int) -> bool:
        """Return whether this holding is current."""
        message = self._held.get(key, {}).get(offset)
        return message is not None and message.pop_ms == pop_ms

    def pending(self, group: str, topic: str) -> int:
        """Return how many messages of the topic, retries included, the group has not done.

        Nothing can be popped of a deleted topic, retries included.
        """
        names = () if topic in self._deleted else (topic, f"%RETRY%{group}_{topic}")
        count = sum(map(len, self._held.values()))
        begin = self._log_begin()
        for (name, queue_id), queue in self._queues.items():
            if name in names:
                start = self._offsets.get((group, name, queue_id), 0)
                start = max(start, self._floors.get((name, queue_id), 0))
                count += sum(stored.position >= begin for stored in queue[start:])
        return count

    # Changes -----------------------------------------------------------------------------------

    def apply(self, command: PopCommands, store_ms: int, added: Sequence[Stored]) -> None:
        match command:
            case PopCommand():
                self._pop(command)
            case AckCommand():
                self._ack(command)
            case PopOrderCommand():
                self._move(command, self.order.pop(command))
            case AckOrderCommand():
                offset = self.order.ack(command)
                key = (command.group, command.topic, command.queue_id)
                if offset is not None and offset > self._offsets.get(key, -1):
                    self._move(command, offset)
            case ChangeInvisibleCommand(is_order=True):
                self.order.change(command)
            case ChangeInvisibleCommand():
                self._change(command)
            case ReviveCommand():
                for group, topic, queue_id, offset, pop_ms in command.rows:
                    self._revive((group, topic, queue_id), offset, pop_ms, store_ms, added)
            case _:
                raise Violation("assert", f"no simulated client asks for {command}")

    def _move(self, command: PopOrderCommand | AckOrderCommand, offset: int | None) -> None:
        if offset is not None:
            self._offsets[command.group, command.topic, command.queue_id] = offset

    def pending_in_order(self, group: str, topic: str) -> int:
        """Return the number of messages that a group that pops in order has not done."""
        begin = self._log_begin()
        return sum(
            stored.position >= begin
            for (name, queue_id), queue in self._queues.items()
            if name == topic
            for stored in queue[self._offsets.get((group, name, queue_id), 0) :]
        )

    def drop_queue(self, key: QueueKey) -> None:
        """Drop the queue's holdings after a reset of the group's offset."""
        self._held.pop(key, None)
        self.order.drop(lambda other: other == key)

    def drop_group(self, group: str) -> None:
        self._held = {key: held for key, held in self._held.items() if key[0] != group}
        self.order.drop(lambda key: key[0] == group)

    def make_topic(self, topic: str) -> None:
        self._deleted.discard(topic)

    def drop_topic(self, topic: str) -> None:
        self._deleted.add(topic)
        self._dropped |= {
            (key, offset, message.pop_ms)
            for key, held in self._held.items()
            if key[1] == topic
            for offset, message in held.items()
        }
        self._held = {key: held for key, held in self._held.items() if key[1] != topic}
        self.order.drop(lambda key: key[1] == topic)

    def _pop(self, command: PopCommand) -> None:
        key = (command.group, command.topic, command.queue_id)
        before = self._offsets.get(key, -1)
        queue = self._queues[command.topic, command.queue_id]
        floor = self._floors.get((command.topic, command.queue_id), 0)
        if before != command.expected or command.next_offset <= floor:
            return  # void
        if any(not floor <= offset < len(queue) for offset in command.offsets):
            raise Violation("G5", f"{key}: {command.offsets} are popped of {floor} to {len(queue)}")
        passed = set(range(max(before, floor), command.next_offset)) - set(command.offsets)
        begin = self._log_begin() if passed else 0
        for offset in sorted(passed):
            if offset >= len(queue) or queue[offset].position >= begin:
                raise Violation("G5", f"{key}: a pop passes over {offset}, which the log has")
        self._offsets[key] = command.next_offset
        visible_ms = command.pop_ms + command.invisible_ms
        message = HeldMessage(command.pop_ms, visible_ms, self._due_ms(command.invisible_ms))
        for offset in command.offsets:
            value = queue[offset].value
            if (key, offset) in self._taken:
                raise Violation("G5", f"{key}: {value} at {offset} is popped twice")
            if (command.group, value) in self._done:
                raise Violation("G5", f"{key}: {value} was acknowledged, and is popped at {offset}")
            self._taken.add((key, offset))
            self._hold(key, offset, message)
        self._counts["messages_popped"] += len(command.offsets)

    def _hold(self, key: QueueKey, offset: int, message: HeldMessage) -> None:
        self._held.setdefault(key, {})[offset] = message
        self._holdings.add((key, offset, message.pop_ms))

    def _ack(self, command: AckCommand) -> None:
        key = (command.group, command.topic, command.queue_id)
        for offset, pop_ms in command.rows:
            if self.holds(key, offset, pop_ms):
                del self._held[key][offset]
                self._done.add((command.group, self._value(key, offset)))
                self._counts["messages_acknowledged"] += 1
            else:
                self._counts["acknowledgements_void"] += 1

    def _change(self, command: ChangeInvisibleCommand) -> None:
        key = (command.group, command.topic, command.queue_id)
        if self.holds(key, command.offset, command.pop_ms):
            due_ms = self._due_ms(command.visible_ms - command.next_pop_ms)
            message = HeldMessage(command.next_pop_ms, command.visible_ms, due_ms)
            self._hold(key, command.offset, message)
            self._counts["messages_postponed"] += 1

    def _revive(
        self, key: QueueKey, offset: int, pop_ms: int, store_ms: int, added: Sequence[Stored]
    ) -> None:
        value = self._value(key, offset)
        copies = [one for one in added if is_again(one.topic) and one.value == value]
        if not self.holds(key, offset, pop_ms):
            if copies and (key, offset, pop_ms) not in self._dropped:
                raise Violation("G5", f"{key}: {value} is held no more, and stored again")
            return
        message = self._held[key].pop(offset)
        if store_ms < message.visible_ms:
            raise Violation(
                "G5", f"{key}: {value} is stored again {message.visible_ms - store_ms} ms too early"
            )
        if self._true_time is not None:
            self._true_time.check_late(value, message.due_ms, self._true_time.now_ms())
        stored = self._queues[key[1], key[2]][offset]
        if len(copies) != 1 and (copies or stored.position >= self._log_begin()):
            raise Violation("G5", f"{key}: {value} is stored again {len(copies)} times")
        self._counts["messages_revived"] += len(copies)

    def _due_ms(self, invisible_ms: int) -> int:
        """Return the true time at which a message that becomes invisible now is visible again."""
        return 0 if self._true_time is None else self._true_time.now_ms() + invisible_ms

    def _value(self, key: QueueKey, offset: int) -> str:
        return self._queues[key[1], key[2]][offset].value
