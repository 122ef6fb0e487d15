"""Popped messages that are held, by queue, and until when: part of the replicated state.

Place in the data path: `broker.state.state` applies POP's commands to it; the leader queries which
messages are held before it proposes, and which are due for another delivery (`broker.pop.revive`).
Pure and deterministic.

A group that pops has its offset where it will pop next: messages below it are acknowledged, held
here, or stored in the group's retry topic.

Invariants: a message is held once at most; a holding ends by an acknowledgement, or in the entry
that stores the message again, never else but with its topic or group; a command that names another
pop time than the holding's changes nothing. RocketMQ keeps this in memory and in revive topics,
which deliver messages twice after a failover. Sources: RocketMQ PopBufferMergeService,
PopReviveService, MessageRequestModeManager.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, assert_never

from broker.entry.pop_commands import (
    AckCommand,
    AckOrderCommand,
    ChangeInvisibleCommand,
    PopCommand,
    PopCommands,
    PopOrderCommand,
    RequestModeCommand,
    ReviveCommand,
)
from broker.entry.state_part import Row, natural, text
from broker.state.pop_order import OrderTable

__all__ = ["Due", "Holding", "PopState", "QueueKey", "RequestMode"]

QueueKey: TypeAlias = tuple[str, str, int]  # group, topic, queue id
_HEAP_SLACK: Final = 1_024


class Holding(NamedTuple):
    pop_ms: int
    visible_ms: int


class Due(NamedTuple):
    visible_ms: int
    key: QueueKey
    offset: int
    pop_ms: int


@dataclass(frozen=True, slots=True)
class RequestMode:
    mode: str
    share_queue_count: int


class PopState:
    def __init__(self) -> None:
        self._held: dict[QueueKey, dict[int, Holding]] = {}
        self._count = 0
        self._heap: list[Due] = []  # may name holdings that are no more
        self.orders = OrderTable()
        self.modes: dict[tuple[str, str], RequestMode] = {}  # by topic and group

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PopState) and list(self.capture()) == list(other.capture())

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __len__(self) -> int:
        """Return how many messages are held, without those popped in order."""
        return self._count

    def held(self, key: QueueKey) -> int:
        return len(self._held.get(key, ()))

    def held_by(self, group: str) -> int:
        """Return how many messages a group holds, in all queues; without those in order."""
        return sum(len(held) for key, held in self._held.items() if key[0] == group)

    def held_offsets(self, key: QueueKey) -> Mapping[int, Holding]:
        """Return the holdings of a queue by offset; the caller must not change them."""
        return self._held.get(key, {})

    def holding(self, key: QueueKey, offset: int) -> Holding | None:
        return self._held.get(key, {}).get(offset)

    def due(self, now_ms: int, count_max: int) -> list[Due]:
        """Return expired holdings, the oldest first; the same again until they are revived."""
        found: list[Due] = []
        while self._heap and self._heap[0].visible_ms <= now_ms and len(found) < count_max:
            due = heapq.heappop(self._heap)
            # It is there twice where a queue was dropped and popped anew in the same millisecond.
            if self._is_current(due) and (not found or due != found[-1]):
                found.append(due)
        for due in found:
            heapq.heappush(self._heap, due)
        return found

    def oldest(self, now_ms: int) -> Iterator[tuple[QueueKey, int]]:
        """Return each queue's lowest held offset, those in order included until their time is over:
        retention must not pass them. The others are held until they are stored again."""
        for key, held in self._held.items():
            yield key, min(held)
        yield from self.orders.oldest(now_ms)

    # Changes -----------------------------------------------------------------------------------

    def apply(self, command: PopCommands, offsets: dict[QueueKey, int]) -> None:
        """Apply a command; `offsets` are the consumer offsets, which pops move."""
        match command:
            case PopCommand():
                self._pop(command, offsets)
            case PopOrderCommand():
                key = (command.group, command.topic, command.queue_id)
                if offsets.get(key, -1) == command.expected:
                    self.orders.pop(key, command)
                    offsets[key] = command.start
            case AckCommand():
                key = (command.group, command.topic, command.queue_id)
                for offset, pop_ms in command.rows:
                    self._end(key, offset, pop_ms)
            case AckOrderCommand():
                key = (command.group, command.topic, command.queue_id)
                next_offset = self.orders.ack(key, command.offset, command.pop_ms)
                # Where the group's offset was moved ahead meanwhile, what lies before it is passed.
                if next_offset is not None and next_offset > offsets.get(key, -1):
                    offsets[key] = next_offset
            case ChangeInvisibleCommand():
                self._change(command)
            case ReviveCommand():
                for group, topic, queue_id, offset, pop_ms in command.rows:
                    self._end((group, topic, queue_id), offset, pop_ms)
            case RequestModeCommand():
                self.modes[command.topic, command.group] = RequestMode(
                    command.mode, command.share_queue_count
                )
            case _:
                assert_never(command)

    def _pop(self, command: PopCommand, offsets: dict[QueueKey, int]) -> None:
        key = (command.group, command.topic, command.queue_id)
        if offsets.get(key, -1) != command.expected:
            return
        offsets[key] = command.next_offset
        holding = Holding(command.pop_ms, command.pop_ms + command.invisible_ms)
        for offset in command.offsets:
            self._hold(key, offset, holding)

    def _hold(self, key: QueueKey, offset: int, holding: Holding) -> None:
        held = self._held.setdefault(key, {})
        self._count += offset not in held
        held[offset] = holding
        heapq.heappush(self._heap, Due(holding.visible_ms, key, offset, holding.pop_ms))
        if len(self._heap) > 2 * self._count + _HEAP_SLACK:
            self._rebuild_heap()

    def _end(self, key: QueueKey, offset: int, pop_ms: int) -> None:
        held = self._held.get(key, {})
        holding = held.get(offset)
        if holding is not None and holding.pop_ms == pop_ms:
            del held[offset]
            self._count -= 1
            if not held:
                del self._held[key]

    def _change(self, command: ChangeInvisibleCommand) -> None:
        key = (command.group, command.topic, command.queue_id)
        if command.is_order:
            self.orders.change(key, command.offset, command.pop_ms, command.visible_ms)
            return
        holding = self.holding(key, command.offset)
        if holding is not None and holding.pop_ms == command.pop_ms:
            self._hold(key, command.offset, Holding(command.next_pop_ms, command.visible_ms))

    def drop_topics(self, topics: Collection[str]) -> None:
        self._retain(lambda key: key[1] not in topics)
        self.modes = {key: mode for key, mode in self.modes.items() if key[0] not in topics}

    def drop_group(self, group: str) -> None:
        self._retain(lambda key: key[0] != group)
        self.modes = {key: mode for key, mode in self.modes.items() if key[1] != group}

    def drop_queue(self, key: QueueKey) -> None:
        """Drop a group's holdings of a queue, which it will read anew."""
        self._count -= len(self._held.pop(key, ()))
        self.orders.drop(key)

    def _retain(self, wanted: Callable[[QueueKey], bool]) -> None:
        """Drop the holdings of all other queues. Rows of the heap stay until their time has come:
        to make it anew takes as long as all holdings are many, and this is part of `apply`."""
        for key in [key for key in self._held if not wanted(key)]:
            self._count -= len(self._held.pop(key))
        self.orders.retain(wanted)

    def _is_current(self, due: Due) -> bool:
        return self.holding(due.key, due.offset) == (due.pop_ms, due.visible_ms)

    def _rebuild_heap(self) -> None:
        self._heap = [
            Due(holding.visible_ms, key, offset, holding.pop_ms)
            for key, held in self._held.items()
            for offset, holding in held.items()
        ]
        heapq.heapify(self._heap)

    # Snapshots ---------------------------------------------------------------------------------

    def capture(self) -> Iterable[Row]:
        """See StatePart."""
        return _Captured(
            {key: dict(held) for key, held in self._held.items()},
            self.orders.capture(),
            dict(self.modes),
        )

    def restore(self, rows: Iterable[Row]) -> None:
        """See StatePart."""
        self._held, self.modes = {}, {}
        orders: list[Row] = []
        for kind, *row in rows:
            if kind == "held":
                group, topic, queue_id, offset, pop_ms, visible_ms = row
                held = self._held.setdefault((text(group), text(topic), natural(queue_id)), {})
                held[natural(offset)] = Holding(natural(pop_ms), natural(visible_ms))
            elif kind == "order":
                orders.append(row)
            elif kind == "mode":
                topic, group, mode, count = row
                self.modes[text(topic), text(group)] = RequestMode(text(mode), natural(count))
            else:
                raise ValueError(f"{kind!r:.40} is nothing that POP keeps")
        self.orders.restore(orders)
        self._count = sum(map(len, self._held.values()))
        self._rebuild_heap()


@dataclass(frozen=True, slots=True)
class _Captured:
    """Captured holdings; rows are made when they are written, on a thread."""

    held: dict[QueueKey, dict[int, Holding]]
    orders: Iterable[Row]
    modes: dict[tuple[str, str], RequestMode]

    def __iter__(self) -> Iterator[Row]:
        for key, held in self.held.items():
            for offset, holding in held.items():
                yield ["held", *key, offset, *holding]
        for row in self.orders:
            yield ["order", *row]
        for (topic, group), mode in self.modes.items():
            yield ["mode", topic, group, mode.mode, mode.share_queue_count]
