"""Planted anomalies of replies, assignments, questions, settings and groups: C16, C17, M12 to M17.

Place in the data path: as `plants_features`.
"""

from __future__ import annotations

from typing import Any, Final

from campaigns.outside.feature_client import queue_name
from campaigns.outside.feature_surgery import Change, first_value, ops_of, plants_of
from campaigns.outside.planting import Plant
from campaigns.outside.plants_retrying import apart
from campaigns.outside.run_rows import MS, SECOND, Row, Run
from campaigns.outside.surgery import op_note, retimed

__all__ = [
    "OPERATING_PLANTS",
    "adds_fault",
    "end_query",
    "made_topic",
    "reply_to",
    "round_of",
    "shown",
]


def adds_fault(run: Run, name: str, begins: int, ends: int) -> None:
    """A fault that took effect, healed for sure."""
    fault: Row = {"fault": len(run.faults), "name": name, "params": "{}", "evidence": "seen"}
    fault |= {"t_start": begins, "t_effect": begins, "t_heal": ends, "t_healed": ends}
    run.faults.append({**fault, "targets": ["broker-a-n1"], "effect": "taken"})


# -- C16


def reply_to(run: Run, number: int) -> tuple[Row, Row]:
    """Return the request of that number and what its responder was answered."""
    request = ops_of(run, "request")[number]
    (reply,) = ops_of(run, "reply", key=first_value(request))
    return request, reply


def _reply_taken_by_the_dead(run: Run) -> str:
    _, reply = reply_to(run, 4)
    reply["type"] = "ok"
    return op_note(reply)


def _dead_before(run: Run) -> str:
    request, reply = reply_to(run, 1)
    request |= {"type": "info", "status": "GONE", "ref": None}
    request["t_complete"] = reply["t_invoke"] - 1
    return op_note(reply)


def _no_reply_though_taken(number: int, by: int) -> Change:
    def change(run: Run) -> str:
        request, reply = reply_to(run, number)
        request |= {"type": "info", "status": "NO_REPLY", "ref": None}
        request["t_complete"] = reply["t_complete"] + by
        return op_note(reply)

    return change


# -- C17


def round_of(run: Run, number: int) -> list[Row]:
    return ops_of(run, "assignment", ref=f"round-{number}")


def _assigned(number: int, *queues: tuple[int, ...]) -> Change:
    def change(run: Run) -> str:
        rows = round_of(run, number)
        for row, owned in zip(rows, queues, strict=True):
            row["assigned"] = [queue_name("orders", queue) for queue in owned]
        return f"round-{number}"

    return change


# -- M12


def end_query(run: Run, number: int) -> Row:
    (row,) = ops_of(run, "ask", key=f"the end of queue {number}")
    return row


def _calm_from_the_start(run: Run) -> str:
    """A question in the first seconds of a run, before which no fault was."""
    row = end_query(run, 3)
    row["status"] = "9"
    retimed(run, apart(row), 1900 * MS, 1901 * MS)
    return op_note(row)


def _answers(number: int, status: str | None) -> Change:
    def change(run: Run) -> str:
        row = end_query(run, number)
        row["status"] = status
        return op_note(row)

    return change


# -- M14


def _gets(number: int, status: str) -> Change:
    def change(run: Run) -> str:
        (row,) = ops_of(run, "get", ref=f"get-{number}")
        row["status"] = status
        return op_note(row)

    return change


def _gets_in_that_moment(run: Run) -> str:
    (row,) = ops_of(run, "get", ref="get-4")
    (change,) = ops_of(run, "set", ref="set-2")
    apart(row)["t_invoke"] = change["t_complete"]
    row["status"] = "500"
    run.number_ops()
    return op_note(row)


# -- M16


def made_topic(run: Run, place: int) -> tuple[Row, Row]:
    """Return a change of the topic `fresh`, and what a name server answered behind it."""
    made = ops_of(run, "create_topic", topic="fresh")[place]
    seen = next(
        row
        for row in ops_of(run, "route", topic="fresh", node="ns-0")
        if row["t_invoke"] > made["t_complete"]
    )
    return made, seen


def _still_shows(place: int, slowly: str | None = None, **columns: Any) -> Change:
    def change(run: Run) -> str:
        made, seen = made_topic(run, place)
        seen |= columns
        if slowly is not None:
            adds_fault(run, slowly, made["t_invoke"] - MS, seen["t_complete"] + SECOND)
        return op_note(seen)

    return change


_NO_TOPIC: Final[Row] = {"assigned": [], "status": None, "ref": None}


# -- M17


def shown(run: Run, f: str, place: int) -> Row:
    """Return what a leader showed of the group that is made and deleted, or its offset."""
    return ops_of(run, f, client_group="made-group")[place]


def _shows(f: str, place: int, **columns: Any) -> Change:
    def change(run: Run) -> str:
        row = shown(run, f, place)
        row |= columns
        return op_note(row)

    return change


OPERATING_PLANTS: Final[tuple[Plant, ...]] = (
    *plants_of(
        "C16",
        taken_by_the_dead=_reply_taken_by_the_dead,
        dead_before=_dead_before,
        taken_in_time=_no_reply_though_taken(2, MS),
        taken_in_time_and_late=_no_reply_though_taken(3, 5 * MS),
    ),
    *plants_of(
        "C17",
        to_both=_assigned(0, (0,), (0,)),
        to_nobody=_assigned(1, (0,), (), ()),
        unevenly=_assigned(0, (0, 1), ()),
        shared_by_one=_assigned(2, (0,), (1,), (0,), ()),
    ),
    *plants_of(
        "M12",
        another=_answers(0, "9"),
        none=_answers(2, None),
        calm=_answers(1, "9"),
        calm_from_the_start=_calm_from_the_start,
    ),
    *plants_of(
        "M14",
        not_now=_gets(6, "500"),
        not_here=_gets(4, "500"),
        not_elsewhere=_gets(5, "500"),
        still_there=_gets(7, "600"),
        what_failed=_gets(6, "700"),
        in_that_moment=_gets_in_that_moment,
    ),
    *plants_of(
        "M16",
        old_permission=_still_shows(1, status="6"),
        no_topic=_still_shows(0, **_NO_TOPIC),
        other_queues=_still_shows(2, assigned=[queue_name("fresh")]),
        slowly=_still_shows(1, "slow-registration", status="6"),
    ),
    *plants_of(
        "M17",
        old_settings=_shows("group", 1, status="retries=3"),
        not_there=_shows("group", 0, status=None),
        deleted=_shows("group", 2, status="retries=5"),
        offsets_left=_shows("fetch_offset", 1, offset=2),
    ),
)
