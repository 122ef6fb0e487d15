"""Legal oddities of operators, models and transactions: at the border of C16, C17, M12 to M17, T13
to T16, T18 and A23.

Place in the data path: a list for `near_misses`. Each quotes the words of docs/RUN_FORMAT.md that
make it legal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from campaigns.outside.feature_client import queue_name
from campaigns.outside.feature_surgery import add_op, drop_ops, ops_of
from campaigns.outside.planting import FEATURES, FEATURES_RETAINED, REPEATED, TWO, NearMiss
from campaigns.outside.plants_decisions import (
    begun_twice,
    checked_twice,
    copied,
    decided_twice,
    quiet_half,
)
from campaigns.outside.plants_operating import (
    adds_fault,
    end_query,
    made_topic,
    reply_to,
    round_of,
    shown,
)
from campaigns.outside.plants_retrying import apart
from campaigns.outside.run_rows import MS, SECOND, Run
from campaigns.outside.surgery import attempts_of, retimed

__all__ = ["OPERATING_NEAR_MISSES"]

_NO_FAULT: Final = frozenset({"A16"})  # a run without a fault shows nothing of recovery


# -- C16


def _taken_in_the_moment(run: Run) -> None:
    request, reply = reply_to(run, 2)
    request |= {"type": "info", "status": "NO_REPLY", "ref": None}
    request["t_complete"] = reply["t_complete"]


def _taken_as_it_died(run: Run) -> None:
    request, reply = reply_to(run, 1)
    request |= {"type": "info", "status": "GONE", "ref": None}
    request["t_complete"] = reply["t_invoke"]


# -- C17


def _shared_unevenly(run: Run) -> None:
    for row, queues in zip(round_of(run, 2), ((0, 1), (0, 1), (), ()), strict=True):
        row["assigned"] = [queue_name("orders", queue) for queue in queues]


def _nothing_of_the_group(run: Run) -> None:
    for row in round_of(run, 1):
        row["assigned"] = []


def _not_all_answered(run: Run) -> None:
    row = round_of(run, 0)[1]
    row |= {"type": "info", "assigned": None}
    apart(row)
    drop_ops(run, [round_of(run, 0)[0]])


# -- M12


def _calm_soon(run: Run) -> None:
    row = end_query(run, 1)
    row["status"] = "9"
    adds_fault(run, "cut-leader", row["t_invoke"] - 3 * SECOND, row["t_invoke"] - 2 * SECOND)


def _calm_in_a_fault(run: Run) -> None:
    row = end_query(run, 3)
    row["status"] = None
    adds_fault(run, "cut-leader", row["t_invoke"] - SECOND, row["t_invoke"])


# -- M14


def _as_it_was_changed(run: Run) -> None:
    (row,) = ops_of(run, "get", ref="get-4")
    (change,) = ops_of(run, "set", ref="set-2")
    apart(row)["t_invoke"] = change["t_complete"] - 1
    row["status"] = "500"
    run.number_ops()


def _changed_perhaps(run: Run) -> None:
    (change,) = ops_of(run, "set", ref="set-3")
    change |= {"type": "info", "t_complete": None}
    apart(change)
    (row,) = ops_of(run, "get", ref="get-6")
    row["status"] = "700"


def _elsewhere_behind_a_fault(run: Run) -> None:
    (row,) = ops_of(run, "get", ref="get-5")
    row["status"] = "500"
    adds_fault(run, "slow-links", row["t_invoke"] - 5500 * MS, row["t_invoke"] - 4900 * MS)


# -- M16


def _made_slowly(run: Run) -> None:
    made, seen = made_topic(run, 1)
    retimed(run, made, made["t_complete"] - 900 * MS, made["t_complete"])
    seen["status"] = "6"


def _made_behind_a_fault(run: Run) -> None:
    made, seen = made_topic(run, 1)
    seen["status"] = "6"
    adds_fault(run, "cut-registration", made["t_invoke"] - SECOND, made["t_invoke"] - 900 * MS)


def _made_elsewhere(run: Run) -> None:
    run.manifest["system"] = "other"
    _, seen = made_topic(run, 1)
    seen["status"] = "6"


# -- M17


def _another_replica_shows(run: Run) -> None:
    row = shown(run, "group", 1)
    other = {"n1": "n2", "n2": "n3", "n3": "n1"}
    row |= {"status": "retries=3", "node": other[row["node"]]}


def _shows_an_older_one(run: Run) -> None:
    shown(run, "group", 2)["status"] = "retries=3"


def _committed_meanwhile(run: Run) -> None:
    row = shown(run, "fetch_offset", 1)
    row["offset"] = 9
    like = shown(run, "commit_offset", 0)
    columns: dict[str, Any] = {"offset": 9, "type": "info", "t_complete": None}
    add_op(run, like, row["t_invoke"] - MS, **columns)


# -- transactions


def _checked_anew_elsewhere(run: Run) -> None:
    """The half was put back: the count is reported of another half."""
    one, other, *_ = checked_twice(run)
    other |= {"status": one["status"], "offset": None}


def _count_not_reported(run: Run) -> None:
    for row in ops_of(run, "check"):
        row["status"] = None


def _frames_twice(run: Run) -> None:
    row = checked_twice(run)[0]
    add_op(run, row, row["t_complete"] + MS)
    adds_fault(run, "duplicate-frames", row["t_invoke"] - MS, row["t_complete"] + SECOND)


def _refused_before_the_answer(run: Run) -> None:
    one, other = decided_twice(run)
    apart(other)["t_invoke"] = one["t_complete"]
    run.number_ops()
    other |= {"type": "fail", "status": "604"}


def _refused_for_another_reason(run: Run) -> None:
    other = decided_twice(run)[1]
    other |= {"type": "fail", "status": "2", "error": "the leader moved"}


def _stored_anew_in_doubt(run: Run) -> None:
    row = begun_twice(run)[1]
    row |= {"type": "info", "status": None, "t_complete": None}
    row["offset"] += 1
    apart(row)


def _stored_anew_without_a_window(run: Run) -> None:
    run.manifest["dedupe"] = None
    begun_twice(run)[0]["offset"] = None


def _checked_at_nine_tenths(run: Run) -> None:
    half, check = quiet_half(run)
    time = half["t_invoke"] + (half["due"] - half["t_invoke"]) * 9 // 10
    retimed(run, check, time, time + MS)


def _one_attempt_wants_none(run: Run) -> None:
    half, check = quiet_half(run)
    add_op(run, half, half["t_invoke"] + MS, due=None, type="info", t_complete=None)
    time = (half["t_invoke"] + half["due"]) // 2
    retimed(run, check, time, time + MS)


# -- A23


def _tried_twice(run: Run) -> None:
    """Whoever had no answer from one group tried the other."""
    run.manifest["dedupe"] = None
    (row,) = attempts_of(run, run.note)
    messages = [{**each, "broker_group": "broker-b", "offset": None} for each in row["messages"]]
    columns: dict[str, Any] = {"type": "info", "t_complete": None, "broker_group": "broker-b"}
    add_op(run, row, row["t_invoke"] + MS, messages=messages, **columns)


def _legal(
    name: str, why: str, change: Any, base: Any = FEATURES, unknown: Any = None, script: Any = None
) -> NearMiss:
    doubts = (_NO_FAULT if base is FEATURES else frozenset()) if unknown is None else unknown
    return NearMiss(name=name, why=why, base=base, change=change, unknown=doubts, script=script)


_BESIDE_FAULTS: Final = replace(
    FEATURES, seed=8, groups=2, replicas=5, faults=("kill-follower", "cut-follower")
)
_ALL_AT_ONCE: Final = replace(
    FEATURES_RETAINED,
    seed=3,
    transactions=True,
    repeats=True,
    push=True,
    broadcast=True,
    limits=True,
    faults=("kill-follower",),
)
OPERATING_NEAR_MISSES: Final[tuple[NearMiss, ...]] = (
    _legal("all features beside faults of followers", "no anomaly", None, _BESIDE_FAULTS),
    _legal("all features and all else in one run", "no anomaly", None, _ALL_AT_ONCE),
    _legal(
        "a reply taken in the moment of giving up",
        "C16: completed before that of one with status NO_REPLY",
        _taken_in_the_moment,
    ),
    _legal(
        "a reply on its way as the asker died",
        "C16: invoked after the t_complete of one with status GONE",
        _taken_as_it_died,
    ),
    _legal(
        "queues that many share, unevenly",
        "C17: where offset is 1, two members whose numbers differ by two",
        _shared_unevenly,
    ),
    _legal(
        "nothing of a broker group assigned",
        "C17: fewer: only of a broker group of which some queue is assigned",
        _nothing_of_the_group,
    ),
    _legal("a round without an answer", "C17: in a round of ok assignments", _not_all_answered),
    _legal(
        "another answer two seconds behind a fault",
        "M12: invoked more than 2 s behind its beginning",
        _calm_soon,
        unknown=frozenset(),
    ),
    _legal(
        "no answer in a fault",
        "M12: lay in a stretch without fault windows",
        _calm_in_a_fault,
        unknown=frozenset(),
    ),
    _legal(
        "asked just before the change was acknowledged",
        "M14: acknowledged by its invoke",
        _as_it_was_changed,
    ),
    _legal(
        "what may have been set",
        "M14: another set (not fail) that was open",
        _changed_perhaps,
    ),
    _legal(
        "an old value of another node behind a fault",
        "M14: if none touches the five seconds before the question",
        _elsewhere_behind_a_fault,
        unknown=frozenset(),
    ),
    _legal("a topic that took long", "M16: that took less than 0.9 s", _made_slowly),
    _legal(
        "a topic made just behind a fault",
        "M16: 1 s behind t_healed",
        _made_behind_a_fault,
        unknown=frozenset(),
    ),
    _legal("a topic of another system", "M16: On ledgermq alone", _made_elsewhere),
    _legal("another replica shows the old group", "M17: by the same node", _another_replica_shows),
    _legal(
        "a deleted group with older settings",
        "M17: is that of the create_group invoked last before it",
        _shows_an_older_one,
    ),
    _legal(
        "an offset stored behind the deletion",
        "M17: no commit or reset (not fail) of the queue",
        _committed_meanwhile,
    ),
    _legal(
        "the same count of a half put back",
        "T14: of one tx, broker group and offset",
        _checked_anew_elsewhere,
        REPEATED,
    ),
    _legal(
        "counts that were not told", "T14: null where it told none", _count_not_reported, REPEATED
    ),
    _legal(
        "a question that the network doubled",
        "T14: without a fault duplicate-frames",
        _frames_twice,
        REPEATED,
    ),
    _legal(
        "refused before the first was answered",
        "T15: invoked after the completion",
        _refused_before_the_answer,
        REPEATED,
    ),
    _legal(
        "refused for another reason", "T15: with status 604", _refused_for_another_reason, REPEATED
    ),
    _legal(
        "a half of unknown end elsewhere", "T16: two ok halves", _stored_anew_in_doubt, REPEATED
    ),
    _legal(
        "a half whose place one answer did not tell",
        "T16: offset in the half topic, if known",
        _stored_anew_without_a_window,
        REPEATED,
    ),
    _legal("asked after nine tenths", "T18: 9/10 of", _checked_at_nine_tenths, REPEATED),
    _legal(
        "an attempt that wants no quiet time",
        "T18: all of whose halves (not fail) have a due",
        _one_attempt_wants_none,
        REPEATED,
    ),
    _legal(
        "tried at both groups",
        "A23: that one operation alone attempted",
        _tried_twice,
        TWO,
        script=copied(),
    ),
    _legal(
        "a copy on a retry topic of another group",
        "A23: in user topics",
        None,
        TWO,
        script=copied("%RETRY%elsewhere"),
    ),
)
