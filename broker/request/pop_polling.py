"""Long polling of POP: pops that are held until a message arrives for them.

Place in the data path: `broker.pop.pop` holds a pop that found nothing; arrivals in its topic or
its group's retry topic wake it, `broker.pop.ordered_queues` when a queue in order is free, and
`broker.admin.offset_reset` when its group is sent back; it is run once more, and held again where
others were faster. `broker.pop.pop_peek` holds queries whether a pop would find a message. Pure:
time is an argument.

Invariants: a group's pops are woken in the order in which they came, at most as many as messages
arrived, not counting those whose clients are gone, which take none; queries take none either: an
arrival wakes every one of them that it fits; the number of what is held is bounded, and what pops
keep of the filters that they brought.
Source: RocketMQ PopLongPollingService, of which NotificationProcessor has one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from broker.entry.payload import UNIT, Run
from broker.request.long_polling import HELD_SIZE_MAX
from remoting.protocol.group_topics import pop_retry_topic

__all__ = ["HeldPop", "PopPolling"]


@dataclass(slots=True, kw_only=True, eq=False)
class HeldPop:
    """Waiting pop; `queue_id` -1: any queue; `wake_ms`: when to run it without an arrival;
    `is_closed`: whether the connection that asked is gone; `is_query`: it takes no message; `size`:
    bytes that it keeps of what it brought."""

    topic: str
    group: str
    queue_id: int
    codes: frozenset[int] | None
    deadline_ms: int
    wake_ms: int | None
    run_again: Callable[[], None]
    is_closed: Callable[[], bool]
    is_query: bool = False
    size: int = 0

    @property
    def takes(self) -> bool:
        """Return whether it will take a message if it is woken for one."""
        return not self.is_query and not self.is_closed()

    @property
    def names(self) -> tuple[str, str]:
        """Return the topics whose arrivals wake it."""
        return self.topic, pop_retry_topic(self.topic, self.group)


class PopPolling:
    def __init__(self, *, held_max: int = 100_000, size_max: int = HELD_SIZE_MAX) -> None:
        self._held_max = held_max
        self._size_max = size_max
        self._held: dict[str, dict[HeldPop, None]] = {}  # by name of topic; in order
        self._count = 0
        self._size = 0
        self._is_open = True

    def __len__(self) -> int:
        return self._count

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return how many pops of the group wait for this queue, without queries."""
        return sum(
            pop.group == group and pop.queue_id == queue_id and not pop.is_query
            for pop in self._held.get(topic, ())
        )

    def hold(self, pop: HeldPop) -> bool:
        """Hold a pop; False if too many are held, or the broker stops: answer it now."""
        if not self._is_open or self._count >= self._held_max:
            return False
        if self._size + pop.size > self._size_max:
            return False
        for name in pop.names:
            self._held.setdefault(name, {})[pop] = None
        self._count += 1
        self._size += pop.size
        return True

    def on_arrival(self, run: Run) -> None:
        """Wake the pops for which committed messages of `run` are new and may match."""
        waiting = self._held.get(run.topic)
        if not waiting:
            return
        codes = {code for _, _, code in UNIT.iter_unpack(run.units)}
        left: dict[str, int] = {}  # how many more of each group
        due: list[HeldPop] = []
        for pop in waiting:
            is_retry = pop.topic != run.topic
            fits = is_retry or (
                pop.queue_id in {-1, run.queue_id}
                and (pop.codes is None or not pop.codes.isdisjoint(codes))
            )
            if fits and (left.setdefault(pop.group, run.count) > 0 or pop.is_query):
                left[pop.group] -= pop.takes
                due.append(pop)
        self._wake(due)

    def wake_one(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one pop of the group that wants this queue (-1: any): there are more messages in it
        than the last one took."""
        due: list[HeldPop] = []
        for pop in self._waiting(topic, group, queue_id):
            due.append(pop)
            if pop.takes:
                break
        self._wake(due)

    def wake_by(self, topic: str, group: str, queue_id: int, wake_ms: int) -> None:
        """Have the group's pops that want this queue run again at that time at the latest."""
        for pop in self._waiting(topic, group, queue_id):
            pop.wake_ms = min(wake_ms, pop.wake_ms or wake_ms)

    def _waiting(self, topic: str, group: str, queue_id: int) -> Iterator[HeldPop]:
        for pop in self._held.get(topic, ()):
            if pop.group == group and (queue_id < 0 or pop.queue_id in {-1, queue_id}):
                yield pop

    def expire(self, now_ms: int) -> None:
        """Wake the pops whose deadlines have passed, or that are to run again now."""
        self._wake(
            [
                pop
                for name, waiting in self._held.items()
                for pop in waiting
                if name == pop.topic
                and (pop.deadline_ms <= now_ms or (pop.wake_ms or now_ms + 1) <= now_ms)
            ]
        )

    def wake_all(self) -> None:
        """Wake all pops after leadership has ended: each answers so."""
        self._wake(
            [pop for name, waiting in self._held.items() for pop in waiting if name == pop.topic]
        )

    def release_all(self) -> None:
        """Wake all pops, and hold no more: the broker stops."""
        self._is_open = False
        self.wake_all()

    def _wake(self, pops: list[HeldPop]) -> None:
        for pop in pops:
            for name in pop.names:
                waiting = self._held[name]
                del waiting[pop]
                if not waiting:
                    del self._held[name]
        self._count -= len(pops)
        self._size -= sum(pop.size for pop in pops)
        assert self._count >= 0
        for pop in pops:
            pop.run_again()
