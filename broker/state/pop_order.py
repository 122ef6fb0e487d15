"""Messages popped in order: a queue delivers a group no others until these are acknowledged.

Place in the data path: part of `broker.state.pop_state`; the leader calls `blocked_until_ms` before
it pops in order. Pure. The group's offset moves over what is acknowledged, as far as nothing before
it is missing; what becomes visible again is popped again from there, counted per message.

Invariant: a queue of a group has one set of messages at a time; a new one replaces it.
Source: RocketMQ ConsumerOrderInfoManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from broker.entry.pop_commands import PopOrderCommand
from broker.entry.state_part import Captured, Row, natural, text

__all__ = ["OrderSet", "OrderTable"]

_Key: TypeAlias = tuple[str, str, int]  # group, topic, queue id


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSet:
    attempt_id: str
    pop_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    done: frozenset[int]
    visible_ms: tuple[tuple[int, int], ...] = ()  # of offsets whose time was changed
    counts: tuple[tuple[int, int], ...] = ()  # of offsets that were popped before, how often

    def blocked_until_ms(self, attempt_id: str, now_ms: int) -> int | None:
        """Return when one of the messages becomes visible, or None if the queue may be popped now.

        The same attempt may pop again at once: its answer was lost.
        """
        if self.is_of(attempt_id):
            return None
        changed = dict(self.visible_ms)
        ends = (
            changed.get(offset, self.pop_ms + self.invisible_ms)
            for offset in self.offsets
            if offset not in self.done
        )
        return min((end for end in ends if end > now_ms), default=None)

    def is_of(self, attempt_id: str) -> bool:
        """Whether the messages were popped by this attempt; never true of one without a name."""
        return bool(self.attempt_id) and self.attempt_id == attempt_id

    @property
    def next_offset(self) -> int:
        """Return the first offset that is not acknowledged, or the one behind all."""
        left = (offset for offset in self.offsets if offset not in self.done)
        return next(left, self.offsets[-1] + 1)


class OrderTable:
    def __init__(self) -> None:
        self._sets: dict[_Key, OrderSet] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def get(self, key: _Key) -> OrderSet | None:
        return self._sets.get(key)

    def oldest(self, now_ms: int) -> Iterator[tuple[_Key, int]]:
        """Return each set's first message that is not done, of the sets that are held at `now_ms`.

        A set that nobody acknowledges or pops again stays, but once its time is over its messages
        are what its group has not consumed yet, as all behind them: nothing waits for them.
        """
        for key, held in self._sets.items():
            if held.blocked_until_ms("", now_ms) is not None:
                yield key, held.next_offset

    def pop(self, key: _Key, command: PopOrderCommand) -> None:
        before = self._sets.get(key)
        counts: dict[int, int] = {}
        if before is not None and before.attempt_id and before.attempt_id == command.attempt_id:
            counts = dict(before.counts)
        elif before is not None:
            known, wanted = dict(before.counts), set(command.offsets)
            counts = {
                offset: known.get(offset, 0) + 1 for offset in before.offsets if offset in wanted
            }
        self._sets[key] = OrderSet(
            attempt_id=command.attempt_id,
            pop_ms=command.pop_ms,
            invisible_ms=command.invisible_ms,
            offsets=tuple(command.offsets),
            done=frozenset(),
            counts=tuple(counts.items()),
        )

    def ack(self, key: _Key, offset: int, pop_ms: int) -> int | None:
        """Acknowledge a message. Return the group's new offset, or None without such a holding."""
        found = self._current(key, offset, pop_ms)
        if found is None:
            return None
        done = replace(found, done=found.done | {offset})
        if len(done.done) == len(done.offsets):
            del self._sets[key]
        else:
            self._sets[key] = done
        return done.next_offset

    def change(self, key: _Key, offset: int, pop_ms: int, visible_ms: int) -> None:
        found = self._current(key, offset, pop_ms)
        if found is not None:
            changed = dict(found.visible_ms) | {offset: visible_ms}
            self._sets[key] = replace(found, visible_ms=tuple(changed.items()))

    def _current(self, key: _Key, offset: int, pop_ms: int) -> OrderSet | None:
        found = self._sets.get(key)
        if found is None or found.pop_ms != pop_ms or offset not in found.offsets:
            return None
        return found

    def drop(self, key: _Key) -> None:
        """Drop the set of a queue, if it has one."""
        self._sets.pop(key, None)

    def retain(self, wanted: Callable[[_Key], bool]) -> None:
        self._sets = {key: held for key, held in self._sets.items() if wanted(key)}

    def capture(self) -> Iterable[Row]:
        return Captured(dict(self._sets), _rows)

    def restore(self, rows: Iterable[Row]) -> None:
        self._sets = {}
        for group, topic, queue_id, attempt_id, *rest in rows:
            pop_ms, invisible_ms, offsets, done, visible_ms, counts = rest
            if not offsets:
                raise ValueError("messages popped in order: none")
            self._sets[text(group), text(topic), natural(queue_id)] = OrderSet(
                attempt_id=text(attempt_id),
                pop_ms=natural(pop_ms),
                invisible_ms=natural(invisible_ms),
                offsets=tuple(map(natural, offsets)),
                done=frozenset(map(natural, done)),
                visible_ms=_pairs(visible_ms),
                counts=_pairs(counts),
            )


def _rows(sets: Mapping[_Key, OrderSet]) -> Iterator[Row]:
    for key, held in sets.items():
        yield [
            *key,
            held.attempt_id,
            held.pop_ms,
            held.invisible_ms,
            list(held.offsets),
            sorted(held.done),
            [list(pair) for pair in held.visible_ms],
            [list(pair) for pair in held.counts],
        ]


def _pairs(rows: Iterable[Row]) -> tuple[tuple[int, int], ...]:
    return tuple((natural(offset), natural(value)) for offset, value in rows)
