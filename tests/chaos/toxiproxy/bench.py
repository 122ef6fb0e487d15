"""Links between two sockets that note what is done to them, on a clock of their own."""

import heapq
import itertools
from collections.abc import Callable

from toxiproxy.frames.link_frames import LinkFrames
from toxiproxy.link import Link
from toxiproxy.toxic import Direction, Toxic
from toxiproxy.toxics import TOXIC_TYPES, AttributeValue


class Alarm:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeTimers:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.time = 0.0
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, Alarm]] = []

    def now(self) -> float:
        return self.time

    def call_at(self, when: float, callback: Callable[[], None]) -> Alarm:
        alarm = Alarm(callback)
        heapq.heappush(self._alarms, (when, next(self._order), alarm))
        return alarm

    def run_until(self, when: float) -> None:
        while self._alarms and self._alarms[0][0] <= when:
            due, _, alarm = heapq.heappop(self._alarms)
            self.time = max(self.time, due)
            if alarm.callback is not None:
                alarm.callback()
        self.time = max(self.time, when)

    @property
    def pending(self) -> int:
        return sum(alarm.callback is not None for _, _, alarm in self._alarms)


class Socket:
    """An endpoint that notes what is done to it."""

    def __init__(self, timers: FakeTimers) -> None:
        self._timers = timers
        self.arrivals: list[tuple[float, bytes]] = []
        self.closed_at: float | None = None
        self.paused = False

    def write(self, data: bytes) -> None:
        assert self.closed_at is None
        self.arrivals.append((self._timers.now(), data))

    def close(self) -> None:
        assert self.closed_at is None
        self.closed_at = self._timers.now()

    def pause(self) -> None:
        assert not self.paused
        self.paused = True

    def resume(self) -> None:
        assert self.paused
        self.paused = False

    @property
    def bytes(self) -> bytes:
        return b"".join(data for _, data in self.arrivals)


class Bench:
    """A link between two such sockets."""

    def __init__(self, *toxics: Toxic, seed: str = "1", frames: LinkFrames | None = None) -> None:
        self.timers = FakeTimers()
        self.source = Socket(self.timers)
        self.destination = Socket(self.timers)
        self.resets = 0
        self.route: Callable[[bytes], None] = self.destination.write
        self.link = Link(
            source=self.source,
            destination=self.destination,
            toxics=toxics,
            timers=self.timers,
            seed=seed,
            on_reset=self._reset,
            on_route=self._route,
            frames=frames,
        )

    def _reset(self) -> None:
        self.resets += 1

    def _route(self, way: Callable[[bytes], None]) -> None:
        self.route = way


def toxic(
    type_name: str,
    name: str = "t",
    toxicity: float = 1.0,
    direction: Direction = Direction.UPSTREAM,
    **attributes: AttributeValue,
) -> Toxic:
    kind = TOXIC_TYPES[type_name]
    return Toxic(
        name=name,
        type_name=type_name,
        stream=direction,
        direction=direction,
        toxicity=toxicity,
        attributes={
            field: attributes.get(field, kind.defaults.get(field, 0)) for field in kind.fields
        },
    )
