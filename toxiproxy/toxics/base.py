"""The interface of every toxic: a stage in one direction of one connection.

A link is a chain of stages; each takes chunks by `feed` and the end of the stream by `finish`, and
passes them to its `out`, which is the next stage or the socket of the other side. Stages are pure:
time comes from `Timers`, chance from the `random.Random` they are given, so a seed decides the
faults of a connection and a test runs them on a clock of its own.

Invariants: order is kept; after a stage has called `out.finish()` or `out.reset()` it calls nothing
more; what a stage holds back is bounded by `held_chunks_max` and `held_bytes_max`, beyond which it
is `full` and the link stops reading from the source.
"""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Protocol, TypeAlias

__all__ = [
    "INT64_MAX",
    "AttributeValue",
    "Attributes",
    "Cancellable",
    "PacedStage",
    "Sink",
    "Stage",
    "Timers",
    "integer",
]

AttributeValue: TypeAlias = int | float | tuple[int, ...]
Attributes: TypeAlias = Mapping[str, AttributeValue]

INT64_MAX = (1 << 63) - 1
_EARLY_S = 0.0005
_PIECES_PER_TURN_MAX = 1024  # then other connections have their turn


class Cancellable(Protocol):
    """A pending timer."""

    def cancel(self) -> None:
        """Keep the callback from being called."""


class Timers(Protocol):
    """The clock of a link; seconds."""

    def now(self) -> float:
        """Return monotonic time."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancellable:
        """Call back at `when` or somewhat later."""


class Sink(Protocol):
    """The next element of the chain, to which a stage passes things on."""

    def feed(self, data: bytes) -> None:
        """Take the next chunk."""

    def finish(self) -> None:
        """Take the end of the stream; nothing comes after it."""

    def reset(self) -> None:
        """Break the whole connection with a TCP reset."""


def integer(attributes: Attributes, field: str) -> int:
    """Return an attribute that is an integer."""
    value = attributes[field]
    assert isinstance(value, int)
    return value


class Stage(ABC):
    """One toxic at work on one direction of one connection.

    An attribute is an integer unless `defaults` holds one of another type for it; what has no
    default begins as 0. `on_room` is called whenever something held was passed on, so that the link
    can read on.
    """

    type_name: ClassVar[str]
    go_name: ClassVar[str]
    fields: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[Attributes] = MappingProxyType({})
    int_name: ClassVar[str] = "int64"
    stays: ClassVar[bool] = False  # in the chain of a spared link too, as `spared`
    swallows: ClassVar[bool] = False  # nothing it is fed goes on, so what lies behind can't be full

    __slots__ = ("attributes", "ended", "on_room", "out", "rng", "spared", "timers")

    def __init__(
        self,
        *,
        attributes: Attributes,
        out: Sink,
        timers: Timers,
        rng: random.Random,
        on_room: Callable[[], None],
    ) -> None:
        self.attributes = attributes
        self.out = out
        self.timers = timers
        self.rng = rng
        self.on_room = on_room
        self.spared = False
        self._begin()

    def _begin(self) -> None:
        """Set up the state of a fresh stage; each kind adds its own."""
        self.ended = False

    @classmethod
    def fault_in(cls, attributes: Attributes) -> str | None:
        """Return why no stage could work with these attributes, or None."""
        del attributes
        return None

    def number(self, field: str) -> int:
        """Return an attribute that is an integer."""
        return integer(self.attributes, field)

    @classmethod
    def spares(cls, attributes: Attributes, *, is_new: bool) -> bool:
        """Return whether a connection is never hit: one made after the toxic, or one before."""
        del attributes, is_new
        return False

    @property
    def full(self) -> bool:
        """Whether the source should pause."""
        return False

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Take the next chunk."""

    @abstractmethod
    def finish(self) -> None:
        """Take the end of the stream; a second call has no effect."""

    @abstractmethod
    def release(self) -> None:
        """Pass on at once what is held, as the toxic is removed."""

    def reset(self) -> None:
        """Break the connection, for a stage before this one."""
        self.ended = True
        self.out.reset()

    def update(self, attributes: Attributes) -> None:
        """Apply new attributes from now on."""
        self.attributes = attributes

    def spare(self, spared: bool) -> None:
        """Have no effect from now on, or have it again; only for a kind that `stays`."""
        self.spared = spared

    def close(self) -> None:
        """Stop all timers and pass nothing on: the connection is gone."""
        self.ended = True

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self.out.finish()


class PacedStage(Stage):
    """A stage that lets chunks through in order, each piece at its time.

    `_pace` plans the head of the queue: how many bytes go next, and when. The plan is made when a
    chunk comes to the head. On an update the waiting piece goes at once and what is behind it is
    planned again, as in Toxiproxy.
    """

    held_chunks_max: ClassVar[int] = 1024
    held_bytes_max: ClassVar[int] = 256 * 1024

    __slots__ = ("_finishing", "_held_bytes", "_plan", "_queue", "_timer")

    def _begin(self) -> None:
        super()._begin()
        self._queue: deque[tuple[float, bytes | memoryview]] = deque()
        self._held_bytes = 0
        self._plan: tuple[int, float | None] | None = None
        self._timer: Cancellable | None = None
        self._finishing = False

    @abstractmethod
    def _pace(self, arrived: float, size: int, now: float) -> tuple[int, float | None]:
        """Return how many bytes of the head to pass on, and when (None: not until an update)."""

    def _passed(self, count: int, due: float) -> None:
        """Note that a piece was passed on at its time."""

    @property
    def full(self) -> bool:
        return self._held_bytes >= self.held_bytes_max or len(self._queue) >= self.held_chunks_max

    def feed(self, data: bytes) -> None:
        if self.ended or self._finishing:
            return
        self._queue.append((self.timers.now(), data))
        self._held_bytes += len(data)
        if self._plan is None:
            self._advance()

    def finish(self) -> None:
        self._finishing = True
        if not self._queue:
            self._end()

    def release(self) -> None:
        self._cancel()
        while self._queue and not self.ended:
            self._emit(len(self._queue[0][1]))
        if self._finishing:
            self._end()

    def update(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self._cancel()
        if self._queue:
            self._emit(len(self._queue[0][1]))
        self._advance()

    def close(self) -> None:
        super().close()
        self._cancel()
        self._queue.clear()
        self._held_bytes = 0

    def _advance(self) -> None:
        """Pass on what is due, then wait for the next."""
        self._timer = None
        was_full = self.full
        now = self.timers.now()
        pieces = 0
        while self._queue and not self.ended:
            if self._plan is None:
                arrived, data = self._queue[0]
                self._plan = self._pace(arrived, len(data), now)
            count, due = self._plan
            if due is None:
                break
            if due > now + _EARLY_S or pieces == _PIECES_PER_TURN_MAX:
                self._timer = self.timers.call_at(due, self._advance)
                break
            self._plan = None
            self._passed(count, due)
            self._emit(count)
            pieces += 1
        if self._finishing and not self._queue:
            self._end()
        if was_full and not self.full:
            self.on_room()

    def _emit(self, count: int) -> None:
        arrived, data = self._queue.popleft()
        assert 0 < count <= len(data) or not data
        if count < len(data):
            view = memoryview(data)  # a chunk in many pieces is not copied once for each
            self._queue.appendleft((arrived, view[count:]))
            data = view[:count]
        self._held_bytes -= len(data)
        self.out.feed(bytes(data))

    def _cancel(self) -> None:
        self._plan = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
