"""Histories of a few operations, written by hand, for what a rule says of exactly these.

A `SyntheticRun` without a single row, and functions that fill it. Times are seconds of the run;
one queue of one topic is read by the group `g`, unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.verify.one_rule import judged, result
from tests.verify.synthetic import MS, NODES, SCHEMAS, STARTED_MS, TOPIC, Row, SyntheticRun
from verify.verdict import CheckResult

__all__ = [
    "AT",
    "GROUP",
    "appended",
    "bare",
    "judged_by",
    "message",
    "op",
    "owned",
    "queue",
    "record",
    "send",
    "show",
]

_S = 1000 * MS
AT = "broker-a"
GROUP: Row = {"kind": "cluster", "at_least_once": False, "ordered": False}


def bare(**manifest: Any) -> SyntheticRun:
    """A run of 200 s, drained from 101 s on, in which nothing happened, and no fault was taken."""
    run = SyntheticRun("a")
    for table in SCHEMAS:
        setattr(run, table, [])
    run.faults = [{"fault": 1, "name": "kill", "targets": [], "t_start": 0, "effect": "not_taken"}]
    run.manifest |= {
        "phases": {
            "load": [0, 100 * _S],
            "heal": [100 * _S, 101 * _S],
            "drain": [101 * _S, 200 * _S],
        },
        "queues": [],
        "consumer_groups": {"g": GROUP},
    } | manifest
    return run


def queue(end: int, *, start: int = 0, topic: str = TOPIC, number: int = 0) -> Row:
    """A drained queue of the manifest that has [start, end)."""
    return {
        "broker_group": AT,
        "topic": topic,
        "queue": number,
        "min_offset": start,
        "max_offset": end,
        "drained": True,
    }


def op(run: SyntheticRun, f: str, begun: float, ended: float | None, **columns: Any) -> Row:
    """An operation from `begun` to `ended`, of the client `c`, which is a process, of group `g`."""
    client = columns.get("client", "c")
    row: Row = {
        "op": len(run.ops),
        "process": client,
        "client": client,
        "client_group": "g",
        "f": f,
        "type": "ok",
        "t_invoke": round(begun * _S),
        "t_complete": None if ended is None else round(ended * _S),
        "broker_group": AT,
    } | columns
    run.ops.append(row)
    run.ops.sort(key=lambda row: row["t_invoke"])
    for number, told in enumerate(run.ops):
        told["op"] = number
    return row


def message(value: str, offset: int | None, **columns: Any) -> Row:
    base: Row = {"value": value, "uniq_key": f"K.{value}", "broker_group": AT, "topic": TOPIC}
    return base | {"queue": 0, "offset": offset, "reconsume": 0} | columns


def send(
    run: SyntheticRun,
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
    run: SyntheticRun,
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


def owned(topic: str = TOPIC) -> list[Row]:
    """What an assign names that names the one queue."""
    return [{"broker_group": AT, "topic": topic, "queue": 0}]


def record(run: SyntheticRun, index: int, value: str, offset: int, **columns: Any) -> None:
    """A committed message of the queue, on every replica."""
    for node in NODES:
        run.log.append(
            {
                "broker_group": AT,
                "node": node,
                "index": index,
                "term": 1,
                "slot": 0,
                "chain": index,
                "position": 100 * index,
                "size": 100,
                "tag_hash": 0,
                "kind": "message",
                "topic": TOPIC,
                "queue": 0,
                "queue_offset": offset,
                "value": value,
                "uniq_key": f"K.{value}",
                "committed": True,
                "cq_ok": True,
                "stored_ms": STARTED_MS + index,
            }
            | columns
        )


def appended(run: SyntheticRun, times: Iterable[float]) -> None:
    """The traces of the replicas: entry 1 was appended at the first of `times`, and so on; each was
    committed a nanosecond later."""
    for node in NODES:
        common = {"broker_group": AT, "node": node, "incarnation": 1, "term": 1}
        told: list[Row] = [{"t": 0, "event": "start", "index": 0, "voters": list(NODES)}]
        for index, at in enumerate(times, 1):
            entry = {"index": index, "entry_term": 1, "chain": index}
            told.append({"t": round(at * _S), "event": "append"} | entry)
            told.append({"t": round(at * _S) + 1, "event": "commit"} | entry)
        run.raft += [common | event | {"seq": seq} for seq, event in enumerate(told, 1)]


def judged_by(rule_id: str, run: SyntheticRun, folder: Path) -> CheckResult:
    return result(judged(rule_id, run, folder))
