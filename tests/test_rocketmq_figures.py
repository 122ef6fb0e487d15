"""The figures of a campaign: what is stored twice, and who asked for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from campaigns.rocketmq_figures import figures_of, table, totals

SECOND = 1_000_000_000
INDEX_ROW = {"engine": "dledger", "seed": 3, "counts": {"lost": 9, "hidden": 9, "gone": 2}}


def op(number: int, value: str, *, f: str = "send", kind: str = "ok", took: int = 1) -> Any:
    messages = [{"value": value}] if f == "send" else []
    return {
        "op": number,
        "f": f,
        "type": kind,
        "topic": "orders",
        "t_invoke": 0,
        "t_complete": took,
        "messages": messages,
        "tx": None,
        "decision": None,
        "client_group": "producers",
        "final": False,
    }


def read(number: int, group: str, *values: str, final: bool = False) -> Any:
    row = op(number, "", f="poll")
    messages = [{"value": value} for value in values]
    return row | {"messages": messages, "client_group": group, "final": final}


def transaction(number: int, value: str, decision: str) -> list[Any]:
    half = op(number, value) | {"f": "half", "tx": f"tx-{value}"}
    decide = op(number + 1, "", f="decide") | {"tx": f"tx-{value}", "decision": decision}
    return [half, decide]


def record(value: str, offset: int, *, topic: str = "orders", committed: bool = True) -> Any:
    return {
        "kind": "message",
        "committed": committed,
        "value": value,
        "topic": topic,
        "queue": 0,
        "queue_offset": offset,
    }


def write(run: Path, ops: list[Any], log: list[Any]) -> None:
    for folder, rows in (("history", ops), ("log/broker-a/n0", log)):
        (run / folder).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), run / folder / "rows.parquet")
    coverage = {
        "faults": {"kill": {"taken": 1, "not_taken": 2}},
        "availability": [
            {"measure": "gap", "name": "plain-0.0", "took_ms": 900.0},
            {"measure": "gap", "name": "tx-0.0", "took_ms": 2_500.0},
            {"measure": "recovery", "name": "0 kill", "took_ms": 9_000.0},
        ],
    }
    checks = [{"id": "A2", "verdict": "fail"}, {"id": "A4", "verdict": "pass"}]
    verdict = {"verdict": "fail", "checks": checks, "coverage": coverage}
    (run / "verdict.json").write_text(json.dumps(verdict))
    (run / "run.json").write_text(json.dumps({"phases": {"load": [0, 3 * SECOND]}}))


def test_what_is_stored_twice_is_told_apart_by_who_asked(tmp_path: Path) -> None:
    ops = [
        op(1, "once"),
        op(2, "slow", took=2 * SECOND),  # the client tried again within the operation
        op(3, "again", kind="info"),
        op(4, "again"),
        op(5, "nobody"),
        op(6, "", f="decide"),
    ]
    log = [record("once", 0), record("slow", 1), record("slow", 2), record("again", 3)]
    log += [record("again", 4), record("nobody", 5), record("nobody", 6), record("tx", 7)]
    log += [record("tx", 8), record("once", 9, committed=False)]
    log += [record("once", 0, topic="RMQ_SYS_TRANS_HALF_TOPIC")]
    write(tmp_path, ops, log)
    row = figures_of(tmp_path, INDEX_ROW)
    assert (row.transactions_twice, row.resent_twice, row.others_twice) == (1, 2, 1)
    assert (row.sends, row.decisions, row.lost, row.gone) == (4, 1, 0, 2)
    assert row.wait_ms == 2_500
    assert "| dledger | 3 | kill 1 of 3 | fail (A2) | 4 and 1 | 0 | 0 | 2 | 1, 2, 1 | 2.5 s |" in (
        table([row])
    )
    assert "| dledger | 2 | 8 and 2 | 0 | 0 | 4 | 2, 4, 2 | 2.5 s |" in totals([row, row])


def test_lost_and_hidden_are_messages_whoever_read_them(tmp_path: Path) -> None:
    ops = [op(n, value) for n, value in enumerate(("whole", "unseen", "gone", "read first"))]
    ops += [op(4, "unanswered", kind="info")]
    ops += transaction(5, "tx lost", "commit") + transaction(7, "tx back", "rollback")
    ops += transaction(9, "tx stored", "commit")
    ops += [read(11, "push", "whole", "read first", "tx stored"), read(12, "pull", "whole")]
    ops += [read(13, "pull", "unseen", "read first", "tx stored")]
    ops += [read(14, "drain", "unseen", "tx stored", final=True)]
    stored = ("whole", "unseen", "tx stored")
    log = [record(value, offset) for offset, value in enumerate(stored)]
    log += [record("gone", 3, committed=False), record("tx lost", 0, topic="HALVES")]
    write(tmp_path, ops, log)
    row = figures_of(tmp_path, INDEX_ROW)
    assert (row.lost, row.hidden) == (3, 1)  # "gone", "read first", "tx lost"; push lacks "unseen"


def test_the_wait_that_the_end_of_the_load_cuts_short_counts(tmp_path: Path) -> None:
    ops = [op(1, "first"), op(2, "last"), op(3, "unanswered", kind="info", took=2 * SECOND)]
    write(tmp_path, [*ops, op(4, "behind the load", took=4 * SECOND)], [record("first", 0)])
    assert round(figures_of(tmp_path, INDEX_ROW).wait_ms) == 3_000
