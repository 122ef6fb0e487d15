"""The pause of acknowledgements that each fault caused in a group, and its parts.

Place in the data path: joins the acknowledgements of `activity`, the windows of `faults` and the
role changes of `replicas`. The pause of a fault is the longest time without an acknowledged write
that overlaps the time from the fault's start until it was healed (not from its observed effect: a
probe that waits for silence sees a cut later than the cluster does). A pause cut off by the end of
the load has no end. If a leader was elected within it, the pause is split:

    last acknowledgement -> a node stands for election -> it leads -> next acknowledgement
                  detect                        elect          recover

Invariants: the parts of a split pause sum up to the pause; of several groups the worst is reported.

Source: the recovery time of rule A16 (docs/RULES.md).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from verify.report.faults import Fault
from verify.report.replicas import RoleChange

__all__ = ["Pause", "pause_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A group acknowledged nothing from `begin` to `end`; nanoseconds, parts None if unknown."""

    group: str
    begin: int
    end: int | None
    detect: int | None = None
    elect: int | None = None
    recover: int | None = None

    @property
    def length(self) -> int | None:
        """The length of the pause; None if the load ended first."""
        return None if self.end is None else self.end - self.begin


def pause_of(
    fault: Fault,
    *,
    acks: Mapping[str, npt.NDArray[np.bool_]],
    tick_ns: int,
    changes: Sequence[RoleChange],
    window: tuple[int, int],
) -> Pause | None:
    """Return the fault's pause; None if no group has acknowledgements around it."""
    # A fault on no group concerns all of them.
    named = [group for group in acks if _is_named(group, fault.targets)]
    pauses = [
        pause
        for group in named or acks
        if (pause := _longest(group, np.flatnonzero(acks[group]), tick_ns, window)) is not None
    ]
    if not pauses:
        return None
    worst = max(pauses, key=lambda pause: (pause.length is None, pause.length or 0))
    return _split(worst, changes)


def _is_named(group: str, targets: Sequence[str]) -> bool:
    """Return whether a target names the group, as GROUP-NODE or GROUP/NODE, or as an end of a link:
    `broker-1` is not in `broker-10-n0`."""
    whole = re.compile(rf"(?<![\w.-]){re.escape(group)}(?![\w.])")
    return any(whole.search(target) for target in targets)


def _longest(
    group: str, ticks: npt.NDArray[np.int64], tick_ns: int, window: tuple[int, int]
) -> Pause | None:
    """Return the longest pause between neighbouring ticks that overlaps the window."""
    begin, end = window
    first = int(np.searchsorted(ticks, begin // tick_ns, side="right")) - 1
    if first < 0:
        return None
    last = int(np.searchsorted(ticks, end // tick_ns, side="left"))
    around = ticks[first : last + 1]
    if last >= len(ticks) and (len(around) < 2 or around[-1] * tick_ns < end):
        tail = Pause(group=group, begin=int(around[-1]) * tick_ns, end=None)
        if len(around) < 2:
            return tail
        gaps = np.diff(around)
        if end - tail.begin > int(gaps.max()) * tick_ns:
            return tail
    gaps = np.diff(around)
    place = int(gaps.argmax())
    return Pause(
        group=group, begin=int(around[place]) * tick_ns, end=int(around[place + 1]) * tick_ns
    )


def _split(pause: Pause, changes: Sequence[RoleChange]) -> Pause:
    """Split the pause into its parts, if an election lies in it."""
    if pause.end is None:
        return pause
    within = [
        change
        for change in changes
        if change.group == pause.group and pause.begin <= change.t <= pause.end
    ]
    stood = min((change.t for change in within if change.role == "candidate"), default=None)
    led = max((change.t for change in within if change.role == "leader"), default=None)
    if stood is None or led is None or led < stood:
        return pause
    return Pause(
        group=pause.group,
        begin=pause.begin,
        end=pause.end,
        detect=stood - pause.begin,
        elect=led - stood,
        recover=pause.end - led,
    )
