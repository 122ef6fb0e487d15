"""Finding and changing rows of a model run: the hands of plants and near misses.

Place in the data path: between a clean `Run` and one that was changed on purpose. Every function
says what a real system would have had to do; none knows how the verifier looks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from campaigns.outside.run_rows import Row, Run

__all__ = [
    "USER_TOPICS",
    "at",
    "attempts_of",
    "events",
    "first_commit",
    "forget_reads",
    "op_note",
    "other_value",
    "read_values",
    "reads_of",
    "records_of",
    "renumber",
    "replace_row",
    "retimed",
    "sends",
]

USER_TOPICS = ("orders", "pay")


def at(rows: Sequence[Row], place: float) -> Row:
    """The row at `place`: 0 the first, 1 the last."""
    assert rows, "the seed has no such row: take another"
    return rows[round(place * (len(rows) - 1))]


def other_value(value: Any) -> object:
    """Return another value that the format knows: of a decision, or of a number."""
    return {"commit": "rollback", "rollback": "commit"}.get(value) or (value or 0) + 1


def attempts_of(run: Run, value: str) -> list[Row]:
    return [row for row in run.ops if row["f"] in {"send", "half"} and value in read_values(row)]


def op_note(row: Row) -> str:
    """What a witness must show of an operation: its number, which changes where runs are merged."""
    return f"op {row['op']}"


def read_values(row: Row) -> list[str]:
    return [message["value"] for message in row.get("messages") or ()]


def sends(
    run: Run,
    *,
    type_: str = "ok",
    f: str = "send",
    group: str | None = None,
    topic: str | None = None,
    queue: int | None = None,
    once: bool = True,
    batch: bool = False,
) -> list[Row]:
    """Sends of that type, by place in their queue; `once`: whose value had one attempt alone."""
    tries: dict[str, int] = {}
    for row in run.ops:
        if row["f"] in {"send", "half"}:
            for value in read_values(row):
                tries[value] = tries.get(value, 0) + 1
    found = [
        row
        for row in run.ops
        if row["f"] == f and row["type"] == type_
        if group in {None, row["broker_group"]} and topic in {None, row["topic"]}
        if queue in {None, row["queue"]} and (len(row["messages"]) > 1) == batch
        if not once or all(tries[value] == 1 for value in read_values(row))
    ]
    return sorted(
        found,
        key=lambda row: (
            row["broker_group"],
            row["topic"],
            row["queue"],
            row["messages"][0]["offset"] or 0,
            row["op"],
        ),
    )


def reads_of(
    run: Run,
    value: str,
    *,
    f: Iterable[str] = ("poll", "deliver"),
    group: str | None = None,
    type_: str | None = "ok",
    final: bool | None = None,
) -> list[tuple[Row, Row]]:
    """Operation and message, for each time that a read showed `value`."""
    return [
        (row, message)
        for row in run.ops
        if row["f"] in f and type_ in {None, row["type"]}
        if group in {None, row["client_group"]}
        if final is None or bool(row.get("final")) == final
        for message in row.get("messages") or ()
        if message["value"] == value
    ]


def forget_reads(
    run: Run,
    value: str,
    *,
    group: str | None = None,
    final: bool | None = None,
    f: str | None = None,
) -> None:
    """Whatever read `value` did not: its message is missing from the answers."""
    for row in run.ops:
        is_read = row["f"] in ({f} if f else {"poll", "deliver", "query"})
        is_meant = group in {None, row["client_group"]} and final in {None, bool(row.get("final"))}
        if is_read and is_meant and row.get("messages"):
            row["messages"] = [message for message in row["messages"] if message["value"] != value]


def records_of(
    run: Run, value: str, *, kind: str | None = None, node: str | None = None
) -> list[Row]:
    return [
        row
        for row in run.log
        if row["value"] == value and kind in {None, row["kind"]} and node in {None, row["node"]}
    ]


def first_commit(run: Run, record: Row) -> int:
    """When the first node of the group traced that the record's entry is committed."""
    times: list[int] = [
        row["t"]
        for row in events(run, "commit", group=record["broker_group"])
        if row["index"] >= record["index"]
    ]
    return min(times)


def events(
    run: Run, event: str, *, node: str | None = None, group: str | None = None, **wanted: object
) -> list[Row]:
    return [
        row
        for row in run.raft
        if row["event"] == event
        and node in {None, row["node"]}
        and group in {None, row["broker_group"]}
        and all(row.get(key) == value for key, value in wanted.items())
    ]


def replace_row(rows: list[Row], old: Row, *new: Row) -> None:
    """Puts `new` where `old` was; by identity, since rows may be equal."""
    place = next(place for place, row in enumerate(rows) if row is old)
    rows[place : place + 1] = new


def renumber(run: Run) -> None:
    """Gives every trace its seq anew, in the order in which its rows lie."""
    counts: dict[tuple[str, str], int] = {}
    for row in run.raft:
        key = (row["broker_group"], row["node"])
        counts[key] = row["seq"] = counts.get(key, 0) + 1


def retimed(run: Run, row: Row, invoke: int, complete: int) -> None:
    """The operation happened then; all are numbered anew."""
    row["t_invoke"], row["t_complete"] = invoke, complete
    run.number_ops()
