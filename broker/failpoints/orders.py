"""What a request about failpoints says, and what is answered: JSON both ways. Pure.

Place in the data path: the handler of the request decodes an `Order`, the laboratory and the
command line encode one; the file of `--failpoints-armed` holds one.

Invariants: an unknown field or an unknown action is an error that names it; all numbers are
bounded, so that no order keeps a process from ever answering again.
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import Annotated, Final, Protocol

import msgspec

__all__ = [
    "ERRORS",
    "Action",
    "Arming",
    "ClockSetting",
    "Order",
    "OrderError",
    "PointReport",
    "Report",
    "Switches",
    "decode_order",
]

ERRORS: Final = {
    name: getattr(errno, name)
    for name in ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EFBIG", "EACCES", "EMFILE", "ENOMEM")
}
_ORDER_SIZE_MAX: Final = 64 << 10
_Ms = Annotated[int, msgspec.Meta(ge=0, le=600_000)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class OrderError(ValueError):
    """The order can't be carried out; the text says what is wrong with it."""


class Action(Enum):
    """Effect of an armed point."""

    CRASH = "crash"
    """The process kills itself with SIGKILL: nothing is flushed, no handler runs."""
    DELAY = "delay"
    """Whoever passes waits for `ms`; on the event loop everything waits."""
    STUCK = "stuck"
    """Whoever passes waits until the point is disarmed, for `ms` at most (a minute without it). On
    the event loop nothing can disarm it before."""
    ERROR = "error"
    """OSError with the number of `errno`."""
    LIE = "lie"
    """An fsync returns without having synced anything."""
    SHORT = "short"
    """Half of the bytes are written; then the count is returned, or `errno` raised if given."""


class Arming(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Order that arms one point: which passes fire, and what firing does.

    Only passes that match `only` count. The first `after` of them do not fire; each later one fires
    with `probability`, until `count` have fired (0: without bound).
    """

    point: str
    action: Action
    ms: _Ms = 0
    errno: str = ""
    count: _Count = 0
    after: _Count = 0
    probability: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    seed: int = 0
    only: str = ""
    """A pattern of `fnmatch` for the label of a pass: a path, a request's name, a peer message."""


class ClockSetting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Error of the process's wall clock from now on.

    With `strobe_ms` the offset applies in every second interval of that length only. The drift
    counts from the moment at which it was set.
    """

    offset_ms: Annotated[int, msgspec.Meta(ge=-(10**12), le=10**12)] = 0
    drift_ppm: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    strobe_ms: _Ms = 0


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Request to change failpoints, carried out as a whole or not at all.

    `disarm` ("*": all points) is carried out first, then `arm`, then `clock`. An empty order
    changes nothing and asks for the report.
    """

    arm: list[Arming] = []
    disarm: list[str] = []
    clock: ClockSetting | None = None


class PointReport(msgspec.Struct, frozen=True):
    """State of one point: `hits` and `fired` count since the process began; `armed` is in force."""

    name: str
    summary: str
    place: str
    actions: list[Action]
    hits: int
    fired: int
    armed: Arming | None = None
    waiting: int = 0
    """How many passes are stuck or delayed there right now."""


class Report(msgspec.Struct, frozen=True):
    """Answer to an order: the state of all points, the clock's setting and its present error."""

    points: list[PointReport]
    clock: ClockSetting
    clock_off_ms: int


class Switches(Protocol):
    """State of a broker's failpoints (`broker.failpoints.switchboard`)."""

    def carry_out(self, order: Order) -> Report:
        """Carry the order out and report. Raises OrderError with nothing changed."""
        ...

    def clock(self) -> dict[str, int]:
        """Return the wall clock's setting and by how much it is off, for status answers."""
        ...


def decode_order(body: bytes) -> Order:
    """Decode an order; an empty body only asks. Raises OrderError."""
    if len(body) > _ORDER_SIZE_MAX:
        raise OrderError(f"an order of {len(body)} bytes; at most {_ORDER_SIZE_MAX} are allowed")
    if not body.strip():
        return Order()
    try:
        return msgspec.json.decode(body, type=Order)
    except (msgspec.DecodeError, RecursionError) as error:
        raise OrderError(f"not an order: {error}") from error
