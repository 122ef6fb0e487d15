"""Admission of connections to a server that has reached its limit.

Place in the data path: `remoting.connections.server` calls it for every connection that it accepts.
Pure: loop time and the connections come as arguments.

Up to `connections_max` every connection is admitted. Beyond, room is made in this order: the oldest
connection that never sent a request is aborted (idle connections keep nobody out); else the
newcomer is put into the reserve of `reserved_max`, which serves only operators and members
(`reserved_codes`). When the reserve is full, a connection in it that has not sent such a request is
aborted first; one that has is kept until it is silent for `_PROVEN_IDLE_S`. When a connection ends,
the oldest of the reserve becomes an ordinary one.

Invariants: at most `connections_max` ordinary connections and `reserved_max` in the reserve; each
open connection is in exactly one of the two.

Source: this project; RocketMQ has no bound on connections.
"""

from __future__ import annotations

import enum
from collections.abc import Set as AbstractSet
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["Admission", "Admitted", "Place"]

_SILENT_S: Final = 1.0  # time limit for a connection's first request
_PROVEN_IDLE_S: Final = 10.0


class Admitted(Protocol):
    """The attributes of a connection that decide its admission."""

    has_requested: bool
    last_active: float


_C = TypeVar("_C", bound=Admitted)


class Place(enum.Enum):
    """The place that a newcomer got."""

    ORDINARY = "ordinary"
    RESERVE = "reserve"
    NONE = "none"


class Admission(Generic[_C]):
    """The open connections of one server, oldest first."""

    def __init__(
        self, *, connections_max: int, reserved_max: int, reserved_codes: AbstractSet[int]
    ) -> None:
        assert connections_max >= 1
        assert reserved_max >= 0
        self.connections_max: Final = connections_max
        self.reserved_max: Final = reserved_max
        self._reserved_codes = reserved_codes
        self._ordinary: dict[_C, None] = {}
        self._silent: dict[_C, float] = {}  # ordinary ones without a known request -> since when
        self._reserve: dict[_C, bool] = {}  # -> whether it proved to be an operator's or member's

    def __len__(self) -> int:
        return len(self._ordinary) + len(self._reserve)

    def admit(self, newcomer: _C, now: float) -> tuple[Place, _C | None]:
        """Find a place for a newcomer; also return the connection to abort for it, if any.

        The connection to abort is removed from this table already; a newcomer without a place is
        not added.
        """
        if len(self._ordinary) < self.connections_max:
            self._add(newcomer, now)
            return Place.ORDINARY, None
        silent = self._oldest_silent(now)
        if silent is not None:
            del self._ordinary[silent]
            self._add(newcomer, now)
            return Place.ORDINARY, silent
        evicted: _C | None = None
        if len(self._reserve) >= self.reserved_max:
            evicted = self._reserve_victim(now)
            if evicted is None:
                return Place.NONE, None
            del self._reserve[evicted]
        self._reserve[newcomer] = False
        return Place.RESERVE, evicted

    def takes(self, connection: _C, code: int) -> bool:
        """Return whether the reserve serves this request; if so, its connection is proven."""
        if code not in self._reserved_codes:
            return False
        if connection in self._reserve:
            self._reserve[connection] = True
        return True

    def forget(self, connection: _C, now: float) -> _C | None:
        """Remove an ended connection; return the one promoted from the reserve, if any."""
        self._reserve.pop(connection, None)
        self._silent.pop(connection, None)
        self._ordinary.pop(connection, None)
        if not self._reserve or len(self._ordinary) >= self.connections_max:
            return None
        oldest = next(iter(self._reserve))
        del self._reserve[oldest]
        self._add(oldest, now)
        return oldest

    def _add(self, connection: _C, now: float) -> None:
        assert len(self._ordinary) < self.connections_max
        self._ordinary[connection] = None
        self._silent[connection] = now

    def _oldest_silent(self, now: float) -> _C | None:
        """Return the oldest connection without a request; others leave `_silent` for good."""
        while self._silent:
            connection, since = next(iter(self._silent.items()))
            if not connection.has_requested and now - since < _SILENT_S:
                return None  # those behind it are younger
            del self._silent[connection]
            if not connection.has_requested:
                return connection
        return None

    def _reserve_victim(self, now: float) -> _C | None:
        """Return the oldest unproven connection, else the oldest that was silent for long."""
        for connection, proven in self._reserve.items():
            if not proven:
                return connection
        for connection in self._reserve:
            if now - connection.last_active >= _PROVEN_IDLE_S:
                return connection
        return None
