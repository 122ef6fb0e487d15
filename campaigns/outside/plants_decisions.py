"""Planted anomalies of decisions, questions and attempts: T13 to T16, T18 and A23.

Place in the data path: a list for `catalogue`, on runs in which halves and decisions are repeated
(T), and on runs of two broker groups (A23).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from campaigns.outside.broker_model import of_message
from campaigns.outside.feature_surgery import add_op, ops_of
from campaigns.outside.model_cluster import ModelCluster
from campaigns.outside.planting import REPEATED, TWO, Plant
from campaigns.outside.run_rows import MS, SECOND, Row, Run
from campaigns.outside.surgery import op_note, retimed
from campaigns.outside.virtual_time import Process

__all__ = [
    "DECISION_PLANTS",
    "begun_twice",
    "checked_twice",
    "copied",
    "decided_twice",
    "quiet_half",
]

Script = Callable[[ModelCluster], Process]


def _by_tx(run: Run, f: str, *types: str) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for row in run.ops:
        if row["f"] == f and row["type"] in types:
            rows.setdefault(row["tx"], []).append(row)
    return rows


def decided_twice(run: Run) -> list[Row]:
    """Return the ok decides of a transaction that was decided twice, one after the other."""
    return next(
        rows
        for rows in _by_tx(run, "decide", "ok").values()
        if len(rows) > 1 and rows[0]["t_complete"] < rows[1]["t_invoke"]
    )


def begun_twice(run: Run) -> list[Row]:
    """Return the ok halves of a transaction that was begun twice."""
    return next(rows for rows in _by_tx(run, "half", "ok").values() if len(rows) > 1)


def checked_twice(run: Run, place: int = 0) -> list[Row]:
    """Return the checks of a transaction that was checked twice or more."""
    return [rows for rows in _by_tx(run, "check", "ok").values() if len(rows) > 1][place]


def quiet_half(run: Run, place: int = 0) -> tuple[Row, Row]:
    """Return an only half that wants a quiet time, and the first check of it."""
    halves, checks = _by_tx(run, "half", "ok", "info"), _by_tx(run, "check", "ok")
    found = [
        (rows[0], checks[tx][0])
        for tx, rows in halves.items()
        if len(rows) == 1 and rows[0]["due"] is not None and tx in checks
    ]
    return found[place]


# -- T13


def _both_acknowledged(run: Run) -> str:
    ok = _by_tx(run, "decide", "ok")
    row = next(
        row
        for row in ops_of(run, "decide", type="fail")
        if any(other["decision"] != row["decision"] for other in ok.get(row["tx"], ()))
    )
    row |= {"type": "ok", "status": None}
    return str(row["tx"])


def _rolled_back_and_there(run: Run) -> str:
    (tx, rows) = next(
        (tx, rows)
        for tx, rows in _by_tx(run, "decide", "ok", "info", "fail").items()
        if all(row["type"] == "ok" and row["decision"] == "commit" for row in rows)
    )
    for row in rows:
        row["decision"] = "rollback"
    return str(tx)


# -- T14


def _counted_alike(run: Run) -> str:
    one, other, *_ = checked_twice(run)
    other["status"] = one["status"]
    return str(one["tx"])


def _checked_again(run: Run) -> str:
    row = checked_twice(run, 1)[0]
    add_op(run, row, row["t_complete"] + MS)
    return str(row["tx"])


# -- T15


def _refused_again(type_: str) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        row = decided_twice(run)[1]
        row |= {"type": type_, "status": "604"}
        if type_ == "info":
            row["process"] = f"{row['process']}.apart"
        return op_note(row)

    return change


# -- T16


def _stored_anew(place: int) -> Callable[[Run], str]:
    def change(run: Run) -> str:
        row = begun_twice(run)[place]
        row["offset"] += 1
        return str(row["tx"])

    return change


# -- T18


def _checked_too_soon(run: Run) -> str:
    half, check = quiet_half(run)
    time = (half["t_invoke"] + half["due"]) // 2
    retimed(run, check, time, time + MS)
    return op_note(check)


def _wanted_longer(run: Run) -> str:
    half, check = quiet_half(run, 1)
    half["due"] += 10 * SECOND
    return op_note(check)


# -- A23


def copied(topic: str | None = None, *, of_tx: bool = False) -> Script:
    """A message of the first group is stored in the second one, too."""

    def script(cluster: ModelCluster) -> Process:
        one, other = cluster.world.brokers["broker-a"], cluster.world.brokers["broker-b"]
        yield 7 * SECOND
        kind = "final" if of_tx else "message"
        tried: dict[str, int] = {}
        for op in cluster.world.ops:
            for message in op.get("messages") or () if op["f"] in {"send", "half"} else ():
                tried[message["value"]] = tried.get(message["value"], 0) + 1
        found = next(
            row
            for place in (("orders", 0), ("orders", 1), ("pay", 0))
            for _, row in one.queues.get(place, ())
            if row["kind"] == kind and tried[row["value"]] == 1
        )
        while (leader := other.group.leader()) is None or not other.group.in_charge(leader):
            yield 5 * MS
        message = {**found["message"], "broker_group": "broker-b"}
        other.add(leader, [of_message(kind, message, topic or "orders", 0)])
        cluster.note = found["value"]

    return script


def _altered(rule: str, **changes: Callable[[Run], str]) -> list[Plant]:
    return [
        Plant(name=f"{rule}-{name.replace('_', '-')}", rule=rule, base=REPEATED, change=change)
        for name, change in changes.items()
    ]


DECISION_PLANTS: Final[tuple[Plant, ...]] = (
    *_altered("T13", both=_both_acknowledged, rolled_back_and_there=_rolled_back_and_there),
    *_altered("T14", counted_alike=_counted_alike, asked_again=_checked_again),
    *_altered("T15", refused=_refused_again("fail"), in_doubt=_refused_again("info")),
    *_altered("T16", the_second=_stored_anew(1), the_first=_stored_anew(0)),
    *_altered("T18", too_soon=_checked_too_soon, wanted_longer=_wanted_longer),
    Plant(name="A23-sent-once", rule="A23", base=TWO, script=copied()),
    Plant(name="A23-sent-once-to-another-topic", rule="A23", base=TWO, script=copied("pay")),
    Plant(name="A23-of-a-transaction", rule="A23", base=TWO, script=copied(of_tx=True)),
)
