"""Legal oddities of consumption and of POP: at the border of C10, C12 to C15, C18, C19, P8 to P10.

Place in the data path: a list for `near_misses`. Each quotes the words of docs/RUN_FORMAT.md that
make it legal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from campaigns.outside.feature_surgery import add_op, drop_ops, first_value, ops_of
from campaigns.outside.planting import FEATURES, FEATURES_RETAINED, NearMiss
from campaigns.outside.plants_operating import adds_fault
from campaigns.outside.plants_reading import (
    acked_by,
    commit_of,
    held,
    noted,
    popped_by,
    sent_message,
    unnoted,
)
from campaigns.outside.plants_retrying import (
    add_refusals,
    apart,
    delivered,
    hears_again,
    lock_of,
    moves_again,
)
from campaigns.outside.run_rows import MS, SECOND, Run
from campaigns.outside.surgery import first_commit, retimed

__all__ = ["CONSUMING_NEAR_MISSES"]

_NO_FAULT: Final = frozenset({"A16"})  # a run without a fault shows nothing of recovery


# -- C10


def _at_nine_tenths(run: Run) -> None:
    """The longest delay of which nine tenths have passed."""
    refusals = [("slow-sender.slow-3", 0), ("slow-sender.slow-1", 0), ("slow-sender.slow-1", 1)]
    passed = min(
        delivered(run, value, count + 1)["t_invoke"] - delivered(run, value, count)["t_complete"]
        for value, count in refusals
    )
    group = run.manifest["consumer_groups"]["slow-readers"]
    group["retry_delay_ms"] = passed // MS * 10 // 9


def _same_place_again(run: Run) -> None:
    """The second delivery of a place, whose refusal ends just before the message comes again."""
    row, last = delivered(run, "slow-sender.slow-1", 1), delivered(run, "slow-sender.slow-1", 2)
    add_op(run, row, last["t_invoke"] - 300 * MS)


def _place_hidden(run: Run) -> None:
    moves_again("slow-sender.slow-3", 1, 500)(run)
    row = delivered(run, "slow-sender.slow-3", 1)
    row["topic"] = "slow"
    row["messages"][0] |= {"topic": "slow", "offset": None}


# -- C12


def _refused(*times: int) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        add_refusals(run, "keeper-1", times)

    return change


def _refused_beside_an_unknown_lock(run: Run) -> None:
    add_refusals(run, "keeper-1", (2100 * MS, 3300 * MS))
    like = lock_of(run, "keeper-2", -1, type="ok")
    behind = lock_of(run, "keeper-2", -1, "unlock")["t_complete"]
    add_op(run, like, behind + MS, type="info", t_complete=None)


def _granted_at_half_lease(run: Run) -> None:
    """A lock ran out for its broker, which restarted, half a lease after its renewal."""
    drop_ops(run, [lock_of(run, "keeper-1", 0, "unlock")])
    renewal = lock_of(run, "keeper-1", -2, type="ok")
    row = lock_of(run, "keeper-2", 0, type="ok")
    apart(row)["t_complete"] = renewal["t_invoke"] + 1500 * MS


def _given_back_or_not(run: Run) -> None:
    row = lock_of(run, "keeper-1", 0, "unlock")
    row |= {"type": "info", "t_complete": None}
    apart(row)


# -- C13


def _seen_on_its_retry_topic(run: Run) -> None:
    run.manifest["consumer_groups"]["tag-readers"]["retries_max"] = None
    drop_ops(run, [delivered(run, "tag-sender.tagged-4")])


def _seen_by_one_that_crashed(run: Run) -> None:
    run.manifest["consumer_groups"]["tag-readers"]["retries_max"] = None
    row = apart(delivered(run, "tag-sender.tagged-5"))
    row |= {"type": "info", "t_complete": None}


def _another_on_the_retry_topic(run: Run) -> None:
    run.manifest["consumer_groups"]["tag-readers"]["retries_max"] = None
    like = delivered(run, "tag-sender.tagged-4", 1)
    shown = {**sent_message(run, "tag-sender.tagged-1"), "reconsume": 1, "offset": None}
    shown["topic"] = like["topic"]
    add_op(run, like, like["t_complete"] + MS, messages=[shown])


def _in_order_and_soon(run: Run) -> None:
    """A group with tags that pops in order, and polls that soon had to show what there was."""
    run.manifest["consumer_groups"]["tag-poppers"]["ordered"] = True
    (*_, row) = ops_of(run, "poll", client="tag-poller")
    retimed(run, row, row["t_invoke"] + 4 * SECOND, row["t_complete"] + 4 * SECOND)
    run.manifest["limits"]["lag_ms"] = 3000


# -- C14


def _one_before_was_refused(run: Run) -> None:
    """What it consumed behind a message that it refused, it could not store."""
    delivered(run, "radio-sender.radio-0")["type"] = "fail"
    hears_again(run, "radio-sender.radio-0", 1)
    again = hears_again(run, "radio-sender.radio-1", 1)
    again["process"] += "-1"


def _left_in_doubt(run: Run) -> None:
    """Whether it could store its offsets as it left is not known."""
    row = next(row for row in ops_of(run, "assign", client="radio-hearer") if not row["assigned"])
    row["type"] = "info"
    hears_again(run, "radio-sender.radio-1", 1)


# -- C15


def _just_before_its_due(run: Run) -> None:
    row = apart(held(run, "woken-sender.woken-0"))
    row["t_complete"] = row["due"] - 1


def _stored_shortly_before(run: Run) -> None:
    row = held(run, "woken-sender.woken-3")
    row["due"] = row["t_complete"]
    taken = row["t_complete"] - commit_of(run, "woken-sender.woken-3")
    run.manifest["consumer_groups"]["wakers"]["wake_ms"] = -(-taken // MS)


def _held_behind_a_fault(run: Run) -> None:
    row = next(row for row in ops_of(run, "poll", client="waker") if not row["messages"])
    row["offset"] = 1
    adds_fault(run, "cut-leader", row["t_invoke"] - 2 * SECOND, row["t_invoke"] - 900 * MS)


# -- C18


def _origin_not_reported(run: Run) -> None:
    for row in run.ops:
        for message in row.get("messages") or ():
            message["origin"] = None


def _sent_to_two_topics(run: Run) -> None:
    (row,) = ops_of(run, "send", value="pop-sender.popped-2")
    message = {**row["messages"][0], "topic": "orders", "offset": None}
    columns = {"topic": "orders", "messages": [message], "type": "fail"}
    add_op(run, row, row["t_invoke"] - 5 * MS, **columns)
    popped_by(run, "r4")["messages"][0]["origin"] = "orders"


# -- C19


def _commits_in_the_moment(run: Run) -> None:
    (row,) = ops_of(run, "commit_offset", client_group="slow-readers", offset=3)
    delivered(run, "slow-sender.slow-2")["t_complete"] = row["t_invoke"]


def _commits_its_beginning(run: Run) -> None:
    (like,) = ops_of(run, "commit_offset", client_group="slow-readers", offset=1)
    first = delivered(run, "slow-sender.slow-0")
    add_op(run, like, first["t_invoke"] - 2 * MS, offset=0, type="info", t_complete=None)


def _gives_up_under_a_lock(run: Run) -> None:
    """A message that was refused as often as it may be: it is dead, and the queue goes on."""
    row = delivered(run, "kept-sender.kept-1", 1)
    (begin, end), message = (row["t_invoke"], row["t_complete"]), row["messages"][0]
    row |= {"type": "fail", "t_complete": (begin + end) // 2}
    again = [{**message, "reconsume": 2}]
    add_op(run, row, (begin + end) // 2 + 1, messages=again, t_complete=end)
    like = ops_of(run, "poll", client_group="dead-readers")[0]
    dead = {**message, "topic": "%DLQ%keepers", "queue": 0, "offset": None, "reconsume": 3}
    place = {"topic": "%DLQ%keepers", "messages": [dead], "client": "dead-reader-2"}
    add_op(run, like, end + SECOND, **place)


# -- P8


def _acked_in_the_moment(run: Run) -> None:
    row = acked_by(run, "r5")
    row["t_complete"] = first_commit(run, noted(run, "ack", "poppers", row["messages"][0])[0])


def _acked_too_late(run: Run) -> None:
    """One that came too late may be answered ok and counts for nothing: nobody wrote it down."""
    row, popped = acked_by(run, "r5"), popped_by(run, "r5")
    time = popped["t_invoke"] + 1900 * MS
    retimed(run, apart(row), time, time + MS)
    unnoted(run, "ack", "poppers", row["messages"][0])


def _change_in_doubt(run: Run) -> None:
    (row,) = ops_of(run, "change", ref="r2")
    unnoted(run, "change", "poppers", row["messages"][0])
    row |= {"type": "info", "t_complete": None, "key": None}
    apart(row)
    acked_by(run, "r3")["ref"] = "r2"


# -- P9


def _another_got_it(run: Run) -> None:
    """A pop that is held on, while another member got what came."""
    row = popped_by(run, "w2")
    time = commit_of(run, first_value(row))
    other = {"client": "pop-waker-2", "t_complete": row["t_complete"]}
    add_op(run, row, time - 100 * MS, **other)
    row |= {"messages": [], "ref": None, "t_complete": time + 900 * MS}
    apart(row)


def _within_wake_ms(run: Run) -> None:
    """As long as it took to answer a pop, so long it may take."""
    taken = [
        row["t_complete"] - commit_of(run, first_value(row))
        for row in ops_of(run, "pop", client_group="pop-wakers")
        if row["messages"]
    ]
    run.manifest["consumer_groups"]["pop-wakers"]["wake_ms"] = -(-max(taken) // MS)


# -- P10


def _taken_and_acked_perhaps(run: Run) -> None:
    row = acked_by(run, "r5")
    row |= {"type": "info", "t_complete": None}
    apart(row)


def _taken_before_the_log_begins(run: Run) -> None:
    """Handed out before the first entry that the group has left."""
    drop_ops(run, [acked_by(run, "r1")])


def _legal(name: str, why: str, change: Any, base: Any = FEATURES, unknown: Any = _NO_FAULT) -> Any:
    return NearMiss(name=name, why=why, base=base, change=change, unknown=unknown)


CONSUMING_NEAR_MISSES: Final[tuple[NearMiss, ...]] = (
    _legal(
        "it comes again after nine tenths of its delay",
        "C10: invoked less than 9/10 of it after the first end",
        _at_nine_tenths,
    ),
    _legal(
        "a place is delivered again, and refused late",
        "C10: after the first end of a delivery with n - 1",
        _same_place_again,
    ),
    _legal("it comes too soon, nobody knows from where", "C10: at a place", _place_hidden),
    _legal(
        "refused twice within a second",
        "C12: twice, 1 s or more apart",
        _refused(2100 * MS, 3000 * MS),
    ),
    _legal(
        "refused soon after it was given back",
        "C12: an ok unlock had ended 2 s before",
        _refused(1900 * MS, 3300 * MS),
    ),
    _legal(
        "refused beside a lock of unknown end",
        "C12: each lock of another client was ok",
        _refused_beside_an_unknown_lock,
    ),
    _legal(
        "granted to another at half the lease",
        "C12: less than half of lease_ms after",
        _granted_at_half_lease,
    ),
    _legal(
        "given back by an unlock of unknown end",
        "C12: no unlock (not fail) of that client",
        _given_back_or_not,
    ),
    _legal(
        "its tag seen on the retry topic alone",
        "C13: in its place or on a retry topic",
        _seen_on_its_retry_topic,
    ),
    _legal("its tag seen by one that crashed", "C13: (any type)", _seen_by_one_that_crashed),
    _legal(
        "another tag on a retry topic",
        "C13: shown to it in its place",
        _another_on_the_retry_topic,
    ),
    _legal(
        "in order, and none of another tag",
        "A5 to A7, A14, C5, C6, C9, P3 and P4 ask of a group with tags for nothing else",
        _in_order_and_soon,
        replace(FEATURES, limits=True),
    ),
    _legal(
        "heard again behind one that it refused",
        "C14: that message and all from the first",
        _one_before_was_refused,
    ),
    _legal(
        "heard again after a leave of unknown end",
        "C14: where this is ok and names nothing; else by progress_ms",
        _left_in_doubt,
    ),
    _legal(
        "a held poll answered just before its time",
        "C15: t_complete at due or later",
        _just_before_its_due,
    ),
    _legal(
        "a held poll answered wake_ms after the commit",
        "C15: more than wake_ms after",
        _stored_shortly_before,
    ),
    _legal(
        "a held poll less than a second behind a fault",
        "C15: 1 s or more behind its beginning",
        _held_behind_a_fault,
        unknown=frozenset(),
    ),
    _legal("no origin told", "C18: null: not told", _origin_not_reported),
    _legal("sent to two topics", "C18: to which no send of its value went", _sent_to_two_topics),
    _legal(
        "a commit in the moment of the delivery's end",
        "C19: ended by its t_invoke; Equal times are legal everywhere",
        _commits_in_the_moment,
    ),
    _legal(
        "a commit of the queue's beginning",
        "C19: the place before its offset, at or above the queue's floor",
        _commits_its_beginning,
    ),
    _legal(
        "a commit behind a dead letter of an exclusive group",
        "C19: a fail counts with reconsume >= retries_max",
        _gives_up_under_a_lock,
    ),
    _legal(
        "an ack in the moment of its commit",
        "P8: committed later than its t_complete",
        _acked_in_the_moment,
    ),
    _legal("an ack that came too late", "P8: a sure ack", _acked_too_late),
    _legal("a change of unknown end", "P8: an ok change", _change_in_doubt),
    _legal("a held pop, while another got it", "P9: the first handout", _another_got_it),
    _legal("a held pop answered after wake_ms", "P9: ended later than that", _within_wake_ms),
    _legal(
        "retention took what had been popped",
        "P10: where no ack is told, and no record of it",
        None,
        FEATURES_RETAINED,
    ),
    _legal(
        "taken, and acked perhaps",
        "P10: no ack of the value (not fail)",
        _taken_and_acked_perhaps,
        FEATURES_RETAINED,
    ),
    _legal(
        "handed out before the logs begin",
        "P10: invoked after the first append of the first entry",
        _taken_before_the_log_begins,
        FEATURES_RETAINED,
    ),
)
