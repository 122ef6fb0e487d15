"""Planted anomalies of members that refuse, restart, lock and commit: C10, C12, C14, C19.

Place in the data path: as `plants_features`.
"""

from __future__ import annotations

from typing import Any, Final

from campaigns.outside.feature_surgery import (
    Change,
    add_op,
    drop_ops,
    ops_of,
    plants_of,
)
from campaigns.outside.planting import Plant
from campaigns.outside.run_rows import MS, Row, Run
from campaigns.outside.surgery import op_note, retimed

__all__ = [
    "RETRYING_PLANTS",
    "add_refusals",
    "apart",
    "delivered",
    "hears_again",
    "lock_of",
    "moves_again",
]


def delivered(run: Run, value: str, reconsume: int = 0) -> Row:
    """Return the first delivery of that value with that count."""
    rows = ops_of(run, "deliver", value=value)
    return next(row for row in rows if row["messages"][0]["reconsume"] == reconsume)


def apart(row: Row) -> Row:
    """Give an operation a process of its own, as it overlaps those of its old one."""
    row["process"] = f"{row['process']}.apart"
    return row


# -- C10


def moves_again(value: str, count: int, after_ms: int) -> Change:
    """The delivery with that count comes so long after the refusal before it."""

    def change(run: Run) -> str:
        refused, row = delivered(run, value, count - 1), delivered(run, value, count)
        time = refused["t_complete"] + after_ms * MS
        retimed(run, apart(row), time, time + MS)
        return value

    return change


def _listens_long(run: Run) -> str:
    """A listener refused only shortly before its message came again."""
    row, again = delivered(run, "slow-sender.slow-3"), delivered(run, "slow-sender.slow-3", 1)
    apart(row)["t_complete"] = again["t_invoke"] - 300 * MS
    return "slow-sender.slow-3"


# -- C12


def lock_of(run: Run, client: str, place: int, f: str = "lock", **wanted: Any) -> Row:
    return ops_of(run, f, client=client, client_group="keepers", **wanted)[place]


def _granted_to_two(run: Run) -> str:
    row = lock_of(run, "keeper-2", 0, type="fail")
    row |= {"type": "ok", "status": None}
    return op_note(row)


def _not_given_back(run: Run) -> str:
    lock_of(run, "keeper-1", 0, "unlock")["type"] = "fail"
    return op_note(lock_of(run, "keeper-2", 0, type="ok"))


def add_refusals(run: Run, client: str, times: tuple[int, ...]) -> list[Row]:
    """Have a member refused so long after the last unlock of the other one."""
    other = "keeper-1" if client == "keeper-2" else "keeper-2"
    behind = lock_of(run, other, -1, "unlock")["t_complete"]
    like = lock_of(run, "keeper-2", 0, type="fail")
    return [
        add_op(run, like, behind + time, client=client, process=f"{client}.{time}")
        for time in times
    ]


def _withheld(client: str) -> Change:
    def change(run: Run) -> str:
        rows = add_refusals(run, client, (2100 * MS, 3300 * MS))
        return op_note(rows[-1])

    return change


# -- C14


def hears_again(run: Run, value: str, life: int, type_: str = "ok") -> Row:
    """The broadcast member is delivered a message again, in its life of that number."""
    assigns = [row for row in ops_of(run, "assign", client="radio-hearer") if row["assigned"]]
    row = delivered(run, value)
    return add_op(run, row, assigns[life]["t_complete"] + 20_000, type=type_)


def _hears_again(value: str, life: int, type_: str = "ok") -> Change:
    def change(run: Run) -> str:
        hears_again(run, value, life, type_)
        return value

    return change


# -- C19


def _commit(run: Run, group: str, offset: int) -> Row:
    (row,) = ops_of(run, "commit_offset", client_group=group, offset=offset)
    return row


def _commits_ahead(run: Run) -> str:
    row = _commit(run, "slow-readers", 3)
    row["offset"] = 5
    for entry in run.log:
        is_group = entry["kind"] == "offset" and entry["client_group"] == "slow-readers"
        if is_group and entry["queue_offset"] == 3:
            entry["queue_offset"] = 5
    return op_note(row)


def _commits_before_the_end(run: Run) -> str:
    row = _commit(run, "slow-readers", 3)
    apart(delivered(run, "slow-sender.slow-2"))["t_complete"] = row["t_invoke"] + MS
    return op_note(row)


def _commits_what_was_interrupted(run: Run) -> str:
    apart(delivered(run, "slow-sender.slow-0"))["type"] = "info"
    return op_note(_commit(run, "slow-readers", 1))


def _passes_over_a_refusal(run: Run) -> str:
    drop_ops(run, [delivered(run, "kept-sender.kept-1", 1)])
    return op_note(_commit(run, "keepers", 2))


RETRYING_PLANTS: Final[tuple[Plant, ...]] = (
    *plants_of(
        "C10",
        too_soon=moves_again("slow-sender.slow-3", 1, 500),
        the_second_time=moves_again("slow-sender.slow-1", 2, 100),
        refused_late=_listens_long,
    ),
    *plants_of(
        "C12",
        granted_to_two=_granted_to_two,
        not_given_back=_not_given_back,
        withheld_from_the_first=_withheld("keeper-1"),
        withheld_from_the_second=_withheld("keeper-2"),
    ),
    *plants_of(
        "C14",
        left_in_order=_hears_again("radio-sender.radio-1", 1),
        after_a_crash=_hears_again("radio-sender.radio-2", 2),
        and_refused=_hears_again("radio-sender.radio-0", 2, "fail"),
    ),
    *plants_of(
        "C19",
        ahead=_commits_ahead,
        before_the_end=_commits_before_the_end,
        interrupted=_commits_what_was_interrupted,
        refused_under_a_lock=_passes_over_a_refusal,
    ),
)
