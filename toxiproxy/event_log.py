"""What happened to one proxy and its connections, in order: `GET /proxies/{name}/events`.

`toxiproxy.proxy` writes it; a reader asks for what came after the last event that it has seen. An
extension: Toxiproxy only logs. Pure: the clock is an argument.

Invariant: numbers rise by one from 1 on; the newest 4,096 events are held, so a gap between the
number that a reader asked for and the first one it gets says that it came too late.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["Event", "EventLog"]

_EVENTS_MAX: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; `connection` is the number of the connection that it concerns, if one."""

    number: int
    wall_ms: int
    kind: str
    connection: int | None
    details: dict[str, object]

    def to_json(self) -> dict[str, object]:
        """Return the event as the API shows it."""
        return {
            "number": self.number,
            "wall_ms": self.wall_ms,
            "kind": self.kind,
            "connection": self.connection,
            "details": self.details,
        }


class EventLog:
    """The newest events of one proxy; `wall_ms` is the clock."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._events: deque[Event] = deque(maxlen=_EVENTS_MAX)
        self._count = 0

    def note(self, kind: str, connection: int | None = None, **details: object) -> None:
        """Append an event."""
        self._count += 1
        self._events.append(
            Event(
                number=self._count,
                wall_ms=self._wall_ms(),
                kind=kind,
                connection=connection,
                details=details,
            )
        )

    def since(self, number: int) -> list[Event]:
        """Return the events held behind that number."""
        return [event for event in self._events if event.number > number]
