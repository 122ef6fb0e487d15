"""Planted anomalies of what is shown, when, and what POP has in the log: C13, C15, C18, P8 to P10.

Place in the data path: as `plants_features`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from campaigns.outside.feature_client import WHEEL
from campaigns.outside.feature_surgery import (
    Change,
    add_op,
    drop_ops,
    first_value,
    ops_of,
    plants_of,
)
from campaigns.outside.planting import FEATURES_RETAINED, Plant
from campaigns.outside.plants_retrying import apart, delivered
from campaigns.outside.run_rows import MS, Row, Run
from campaigns.outside.surgery import first_commit, op_note, records_of, retimed

__all__ = [
    "READING_PLANTS",
    "acked_by",
    "commit_of",
    "held",
    "holds_on",
    "noted",
    "popped_by",
    "sent_message",
    "unnoted",
]

# -- C13


def sent_message(run: Run, value: str) -> Row:
    """Return the message at the place where its send was answered."""
    (row,) = ops_of(run, "send", value=value)
    return dict(row["messages"][0])


def _not_shown(run: Run) -> str:
    drop_ops(run, [delivered(run, "tag-sender.tagged-5")])
    return "tag-sender.tagged-5"


def _of_another_tag(run: Run) -> str:
    like = delivered(run, "tag-sender.tagged-5")
    shown = [sent_message(run, "tag-sender.tagged-3")]
    add_op(run, like, like["t_complete"] + MS, messages=shown)
    return "tag-sender.tagged-3"


def _polled_of_another_tag(run: Run) -> str:
    (row, _) = ops_of(run, "poll", client="tag-poller")
    row["messages"].insert(1, sent_message(run, "tag-sender.tagged-1"))
    return "tag-sender.tagged-1"


# -- C15


def commit_of(run: Run, value: str) -> int:
    """When the message's record on the topic to which it was sent was first committed."""
    topic = sent_message(run, value)["topic"]
    record = next(row for row in records_of(run, value) if row["topic"] == topic)
    return first_commit(run, record)


def held(run: Run, value: str) -> Row:
    """Return the held poll that showed this message."""
    return ops_of(run, "poll", client_group="wakers", value=value)[0]


def _woken_late(run: Run) -> str:
    row = apart(held(run, "woken-sender.woken-0"))
    row["t_complete"] = row["due"] + MS
    return op_note(row)


def _never_woken(run: Run) -> str:
    row = apart(held(run, "woken-sender.woken-1"))
    add_op(run, row, row["due"] + 2 * MS, due=None)
    row |= {"messages": [], "t_complete": row["due"]}
    return op_note(row)


def _not_answered_at_once(run: Run) -> str:
    row = next(row for row in ops_of(run, "poll", client="waker") if not row["messages"])
    apart(row)["offset"] = 1
    return op_note(row)


# -- C18


def _shown_as(f: str, origin: str, place: int = 0, **wanted: Any) -> Change:
    def change(run: Run) -> str:
        row = ops_of(run, f, **wanted)[0]
        row["messages"][place]["origin"] = origin
        return str(row["messages"][place]["value"])

    return change


# -- P8


def popped_by(run: Run, ref: str) -> Row:
    (row,) = ops_of(run, "pop", ref=ref)
    return row


def acked_by(run: Run, ref: str) -> Row:
    (row,) = ops_of(run, "ack", ref=ref)
    return row


def noted(run: Run, kind: str, group: str, message: Row) -> list[Row]:
    """Return POP's records of that kind at the place of a message, on all replicas."""
    return [
        row
        for row in run.log
        if row["kind"] == kind
        and row["client_group"] == group
        and (row["topic"], row["queue_offset"]) == (message["topic"], message["offset"])
    ]


def unnoted(run: Run, kind: str, group: str, message: Row) -> None:
    """Have the log say that another group had done it."""
    for row in noted(run, kind, group, message):
        row["client_group"] = "nobody"


def _answered_first(f: str, ref: str, by: int = 1) -> Change:
    def change(run: Run) -> str:
        (row,) = ops_of(run, f, ref=ref)
        message = row["messages"][-1]
        (first, *_) = noted(run, f, row["client_group"], message)
        row["t_complete"] = first_commit(run, first) - by
        assert row["t_complete"] > row["t_invoke"]
        return str(message["value"])

    return change


def _never_noted(f: str, ref: str) -> Change:
    def change(run: Run) -> str:
        (row,) = ops_of(run, f, ref=ref)
        unnoted(run, f, row["client_group"], row["messages"][0])
        return first_value(row)

    return change


def _noted_elsewhere(run: Run) -> str:
    row = popped_by(run, "r5")
    for record in noted(run, "pop", "poppers", row["messages"][0]):
        record["queue_offset"] += 12
    return first_value(row)


# -- P9


def holds_on(run: Run, ref: str, after_ms: int) -> Row:
    """A held pop is answered so long after the commit of what it shows; its ack follows."""
    row = popped_by(run, ref)
    row["t_complete"] = commit_of(run, first_value(row)) + after_ms * MS
    retimed(run, apart(acked_by(run, ref)), row["t_complete"] + MS, row["t_complete"] + 2 * MS)
    return apart(row)


def _pop_woken_late(run: Run) -> str:
    return first_value(holds_on(run, "w1", 900))


def _pop_held_in_vain(run: Run) -> str:
    row = holds_on(run, "w2", 900)
    value = first_value(row)
    (ack,) = ops_of(run, "ack", ref="w2")
    retimed(run, ack, row["t_complete"] + 5 * MS, row["t_complete"] + 6 * MS)
    add_op(run, row, row["t_complete"] + MS)
    row |= {"messages": [], "ref": None}
    return value


# -- P10


def _taken_unacked(ref: str, place: int, *, failed: bool) -> Change:
    def change(run: Run) -> str:
        row = acked_by(run, ref)
        value = str(row["messages"][place]["value"])
        if failed:
            row["type"] = "fail"
        else:
            del row["messages"][place]
            if not row["messages"]:
                drop_ops(run, [row])
        return value

    return change


READING_PLANTS: Final[tuple[Plant, ...]] = (
    *plants_of(
        "C13",
        not_shown=_not_shown,
        of_another_tag=_of_another_tag,
        polled_of_another_tag=_polled_of_another_tag,
    ),
    *plants_of(
        "C15",
        woken_late=_woken_late,
        never_woken=_never_woken,
        not_answered_at_once=_not_answered_at_once,
    ),
    *plants_of(
        "C18",
        where_it_waited=_shown_as("poll", WHEEL, value="delayer.later-1"),
        popped_again=_shown_as("pop", "%RETRY%poppers_popped", ref="r4"),
        dead=_shown_as("poll", "%RETRY%poppers_popped", client_group="dead-readers"),
        found=_shown_as("search", "orders", ref="range"),
    ),
    *plants_of(
        "P8",
        pop_first=_answered_first("pop", "r5"),
        ack_first=_answered_first("ack", "r1"),
        change_first=_answered_first("change", "r2", MS // 10),
        ack_never=_never_noted("ack", "q2"),
        pop_elsewhere=_noted_elsewhere,
    ),
    *plants_of("P9", woken_late=_pop_woken_late, held_in_vain=_pop_held_in_vain),
    *(
        replace(plant, base=FEATURES_RETAINED)
        for plant in plants_of(
            "P10",
            never_acked=_taken_unacked("r5", 0, failed=False),
            ack_refused=_taken_unacked("r5", 0, failed=True),
            on_the_retry_topic=_taken_unacked("r4", 0, failed=False),
        )
    ),
)
