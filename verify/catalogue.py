"""All checks, in the order in which a verdict lists them.

Place in the data path: `verify.run` goes through it; a check that is not here is not run. Which
promise a check belongs to, which tables it needs, and what makes it apply are told here and
nowhere else.

The promises are those of the design: G1 durable, G2 once, G3 order, G4 atomic transactions, G5
replicated state, G6 no stale answers, G7 honest outcomes.
"""

from __future__ import annotations

from typing import Final

from verify.checks import places, reads
from verify.checks.finding import Check
from verify.counts import Counts

__all__ = ["CHECKS"]


def _ok_reads(counts: Counts) -> int:
    return counts.shown("poll", "deliver", type="ok")


def _acked(counts: Counts) -> int:
    return counts.shown("send", type="ok") + counts.ops("decide", type="ok")


def _reads(counts: Counts) -> int:
    return counts.shown("poll", "deliver")


_NO_READ: Final = "no operation read anything"

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="A1",
        name="inconsistent offsets",
        promise="G3",
        needs=("ops",),
        wants=("log",),
        examined=lambda counts: _reads(counts) + counts.committed("message", "final"),
        nothing=_NO_READ,
        find=places.inconsistent_offsets,
    ),
    Check(
        id="A2",
        name="stored twice",
        promise="G2",
        needs=("ops",),
        wants=("log",),
        examined=lambda counts: _reads(counts) + counts.committed("message", "final"),
        nothing=_NO_READ,
        find=places.duplicates,
    ),
    Check(
        id="A3",
        name="aborted read",
        promise="G7",
        needs=("ops",),
        examined=_ok_reads,
        nothing=_NO_READ,
        find=reads.aborted_reads,
    ),
    Check(
        id="A4",
        name="lost write",
        promise="G1",
        needs=("ops",),
        wants=("log",),
        examined=_ok_reads,
        nothing=_NO_READ,
        find=reads.lost_writes,
    ),
    Check(
        id="A5",
        name="acknowledged but unseen",
        promise="G1",
        needs=("ops",),
        wants=("log",),
        examined=_acked,
        nothing="nothing was acknowledged",
        find=reads.unseen_values,
    ),
    Check(
        id="A11",
        name="unexpected value",
        promise="G7",
        needs=("ops",),
        wants=("log",),
        examined=_reads,
        nothing=_NO_READ,
        find=reads.unexpected_values,
    ),
)
