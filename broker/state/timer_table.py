"""Timer messages that wait for their time of delivery, and their positions in the log.

Place in the data path: `broker.state.state` applies the runs of rmq_sys_wheel_timer and the
commands that take messages out again; `broker.delay.timers` finds on the leader what is due;
retention stays behind the oldest. Pure part of the replicated state: no failover delivers one
twice, or forgets it.

Invariants: a message waits from the entry that holds it until the entry that holds its delivery or
its recall, and in none other; what is due is given by its time, and in the order of storing within
a millisecond. RocketMQ keeps a wheel of slots and a log of its own, neither of them replicated by
DLedger. Source: RocketMQ TimerMessageStore, TimerWheel.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from broker.entry.state_part import Row, natural

__all__ = ["Timer", "TimerTable"]


class Timer(NamedTuple):
    """Waiting message: due at `deliver_ms`, its record at `position` of the log."""

    deliver_ms: int
    position: int
    size: int


class TimerTable:
    def __init__(self) -> None:
        self._waiting: dict[int, Timer] = {}  # by queue offset, ascending
        self._times: list[int] = []  # ascending, each once
        # By time, in the order of storing; a list would be searched for each recall, and all may
        # be due at one moment.
        self._offsets_at: dict[int, dict[int, None]] = {}
        self.next_offset = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimerTable) and self._waiting == other._waiting

    __hash__ = None  # type: ignore[assignment]  # it changes

    def get(self, queue_offset: int) -> Timer | None:
        return self._waiting.get(queue_offset)

    def at(self, deliver_ms: int) -> Sequence[int]:
        """Return the queue offsets of the messages that are due at exactly this time."""
        return tuple(self._offsets_at.get(deliver_ms, ()))

    def due(self, now_ms: int, *, but: Collection[int], count_max: int) -> list[int]:
        """Return the queue offsets of messages that are due, the earliest first."""
        offsets: list[int] = []
        for deliver_ms in self._times:
            if deliver_ms > now_ms:
                break
            for offset in self._offsets_at[deliver_ms]:
                if offset in but:
                    continue
                if len(offsets) == count_max:
                    return offsets
                offsets.append(offset)
        return offsets

    @property
    def first_ms(self) -> int | None:
        """Return when the earliest is due, or None."""
        return self._times[0] if self._times else None

    @property
    def begin_position(self) -> int | None:
        """Return the oldest waiting message's log position, the limit of retention, or None."""
        oldest = next(iter(self._waiting.values()), None)
        return None if oldest is None else oldest.position

    def add(self, queue_offset: int, timer: Timer) -> None:
        assert queue_offset >= self.next_offset, "timer offsets rise"
        self.next_offset = queue_offset + 1
        self._waiting[queue_offset] = timer
        offsets = self._offsets_at.get(timer.deliver_ms)
        if offsets is None:
            self._offsets_at[timer.deliver_ms] = {queue_offset: None}
            insort(self._times, timer.deliver_ms)
        else:
            offsets[queue_offset] = None

    def deliver(self, queue_offsets: Iterable[int]) -> None:
        for offset in queue_offsets:
            self._take_out(offset)

    def recall(self, queue_offset: int) -> None:
        self._take_out(queue_offset)

    def _take_out(self, queue_offset: int) -> None:
        timer = self._waiting.pop(queue_offset, None)
        assert timer is not None, f"timer message {queue_offset} does not wait"
        offsets = self._offsets_at[timer.deliver_ms]
        del offsets[queue_offset]
        if not offsets:
            del self._offsets_at[timer.deliver_ms]
            del self._times[bisect_left(self._times, timer.deliver_ms)]

    def capture(self) -> Iterable[Row]:
        """See StatePart."""
        return _Rows(dict(self._waiting))

    def restore(self, rows: Iterable[Row]) -> None:
        """See StatePart."""
        self._waiting, self._times, self._offsets_at, self.next_offset = {}, [], {}, 0
        for row in rows:
            offset, deliver_ms, position, size = map(natural, row)
            if offset < self.next_offset:
                raise ValueError("timer messages are out of order")
            self.next_offset = offset + 1
            self._waiting[offset] = Timer(deliver_ms, position, size)
            self._offsets_at.setdefault(deliver_ms, {})[offset] = None
        self._times = sorted(self._offsets_at)


class _Rows:
    """Captured timers, one copy made on the loop; rows are made when they are written."""

    def __init__(self, waiting: dict[int, Timer]) -> None:
        self._waiting = waiting

    def __iter__(self) -> Iterator[Row]:
        for offset, timer in self._waiting.items():
            yield [offset, *timer]
