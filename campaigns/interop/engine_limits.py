"""What can't hold on the engines `async` and `sync`, with the reason: the one table of it.

Place: `programs.py` judges each outcome by it. A case that is listed runs all the same, and has to
fail, unless it may hold by luck: what holds is reported as a failure, so that no line outlives its
reason. Pure.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final

from campaigns.interop.master_slave import MODES
from campaigns.interop.matrix import Outcome

__all__ = ["IMPOSSIBLE", "LIMITS", "Limit", "judged", "limit_of"]

IMPOSSIBLE: Final = "impossible"


@dataclass(frozen=True, slots=True)
class Limit:
    """Cases, on targets, that can't hold; both are patterns. `sometimes`: they do where the master
    is back soon enough."""

    case: str
    target: str
    reason: str
    sometimes: bool = False


LIMITS: Final = (
    Limit(
        "status-flush-slave-timeout",
        "ledgermq-async-*",
        "the engine async waits for no slave",
    ),
    Limit(
        "status-slave-not-available",
        "ledgermq-async-*",
        "the engine async waits for no slave",
    ),
    Limit(
        "status-flush-disk-timeout",
        "ledgermq-*-async-*",
        "with flush async nobody waits for an fsync",
    ),
    Limit(
        "slave-takes-sends",
        "ledgermq-*-roles",
        "nobody is elected: sends wait for the master, or go to another group",
    ),
    Limit(
        "slave-orderly-goes-on",
        "ledgermq-*-roles",
        "locks of queues are the master's; who has one goes on for half a minute",
    ),
    Limit(
        "slave-pop-goes-on",
        "ledgermq-*-roles",
        "what is popped is held in the log, which only the master writes",
    ),
    Limit(
        "trace-of-*",
        "ledgermq-*-kill",
        "clients send a trace once: without a master it is dropped",
        sometimes=True,
    ),
)


def limit_of(case: str, target: str) -> Limit | None:
    """Return why that case can't hold on that target; None: it should."""
    if target not in MODES:
        return None
    for limit in LIMITS:
        if fnmatch(case, limit.case) and fnmatch(target, limit.target):
            return limit
    return None


def judged(outcome: Outcome) -> Outcome:
    """Return the outcome by the table: what can't hold and didn't is no failure, and what can't
    hold and did is one."""
    limit = limit_of(outcome.case, outcome.target)
    if limit is None or outcome.outcome not in ("pass", "fail"):
        return outcome
    if outcome.outcome == "pass":
        if limit.sometimes:
            return outcome
        detail = f"it holds, though it is listed as impossible: {limit.reason}"
        return dataclasses.replace(outcome, outcome="fail", detail=detail)
    return dataclasses.replace(outcome, outcome=IMPOSSIBLE, detail=limit.reason)
