"""Finding and changing rows of a run in which every feature is used once.

Place in the data path: below `plants_features` and `plants_management`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from campaigns.outside.planting import FEATURES, Plant
from campaigns.outside.run_rows import MS, Row, Run

__all__ = ["Change", "add_op", "drop_ops", "first_value", "ops_of", "plants_of"]

Change: TypeAlias = Callable[[Run], str]


def ops_of(run: Run, f: str, **wanted: Any) -> list[Row]:
    """Operations of that kind with those columns; `value`: that show or send it."""
    value = wanted.pop("value", None)
    return [
        row
        for row in run.ops
        if row["f"] == f
        and all(row.get(name) == expected for name, expected in wanted.items())
        and (value is None or value in [m["value"] for m in row.get("messages") or ()])
    ]


def drop_ops(run: Run, rows: list[Row]) -> None:
    """Forget these operations."""
    run.ops = [row for row in run.ops if not any(row is other for other in rows)]


def add_op(run: Run, like: Row, t_invoke: int, **columns: Any) -> Row:
    """A row like that one, at that time, by a process of its own."""
    row = {**like, "t_invoke": t_invoke, "t_complete": t_invoke + MS, **columns}
    row["process"] = f"{like['process']}.planted"
    if row.get("messages") is not None:
        row["messages"] = [dict(message) for message in row["messages"]]
    run.ops.append(row)
    run.number_ops()
    return row


def first_value(row: Row) -> str:
    """Return the value of the row's first message."""
    return str(row["messages"][0]["value"])


def plants_of(rule: str, **changes: Change) -> list[Plant]:
    """Plants of one rule, named by the keywords."""
    return [
        Plant(name=f"{rule}-{name.replace('_', '-')}", rule=rule, base=FEATURES, change=change)
        for name, change in changes.items()
    ]
