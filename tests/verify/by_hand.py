"""Histories of a few operations, written by hand, for what a rule says of exactly these.

A `FewRows` run and functions that fill it. Times are seconds of the run; one queue of one topic is
read by the group `g`, unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.verify.few_rows import AT, GROUP, FewRows, S, message
from tests.verify.one_rule import judged, result
from tests.verify.synthetic import TOPIC, Row
from verify.verdict import CheckResult

__all__ = ["appended", "bare", "judged_by", "op", "record", "send", "show"]


def bare(**manifest: Any) -> FewRows:
    """A run of 200 s, drained from 101 s on, in which nothing happened, and no fault was taken."""
    run = FewRows(**{"consumer_groups": {"g": GROUP}} | manifest)
    run.faults = [{"fault": 1, "name": "kill", "targets": [], "t_start": 0, "effect": "not_taken"}]
    return run


def op(run: FewRows, f: str, begun: float, ended: float | None, **columns: Any) -> Row:
    """An operation from `begun` to `ended`, of the client `c`, which is a process, of group `g`."""
    client = columns.get("client", "c")
    row: Row = {
        "process": client,
        "client": client,
        "client_group": "g",
        "f": f,
        "type": "ok",
        "t_invoke": round(begun * S),
        "t_complete": None if ended is None else round(ended * S),
        "broker_group": AT,
    } | columns
    run.ops.append(row)
    return row


def send(
    run: FewRows,
    at: float,
    value: str,
    offset: int | None,
    *,
    topic: str = TOPIC,
    digest: int | None = None,
    **columns: Any,
) -> Row:
    """A send of the client `pr` within a millisecond."""
    row = {"client": "pr", "client_group": "producers", "topic": topic, "queue": 0} | columns
    sent = message(value, offset, topic=topic, digest=digest)
    return op(run, "send", at, at + 0.001, messages=[sent], **row)


def show(
    run: FewRows,
    f: str,
    at: float,
    value: str,
    offset: int,
    *,
    topic: str = TOPIC,
    digest: int | None = None,
    **columns: Any,
) -> Row:
    """A poll or deliver within a millisecond that shows one message."""
    row = {"topic": topic, "queue": 0, "offset": offset if f == "poll" else None} | columns
    shown = message(value, offset, topic=topic, digest=digest)
    return op(run, f, at, at + 0.001, messages=[shown], **row)


def record(
    run: FewRows, index: int, value: str, offset: int, *, kind: str = "message", **columns: Any
) -> None:
    """A committed record of the queue, on every replica."""
    run.record(index, kind, offset, value, **columns)


def appended(run: FewRows, times: Iterable[float]) -> None:
    """The traces of the replicas: entry 1 was appended at the first of `times`, and so on; each was
    committed a nanosecond later."""
    run.traced({index: round(at * S) for index, at in enumerate(times, 1)})


def judged_by(rule_id: str, run: FewRows, folder: Path) -> CheckResult:
    return result(judged(rule_id, run, folder))
