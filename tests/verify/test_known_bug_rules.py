"""The rules for one published bug each: that they see its damage, and not what looks like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from campaigns.known_bugs import RULES
from tests.verify.consumer_runs import DEAD, consumer_run
from tests.verify.delayed_rows import delay, fall_due, record, request
from tests.verify.management import change_topic, view
from tests.verify.one_rule import judged, result
from tests.verify.synthetic import MS, OP, TOPIC, SyntheticRun
from verify.verdict import Outcome

NO_CLUSTER = "MessageRefusedError: message K.a.q0 is no request: it has no CLUSTER"


def outcome_of(rule_id: str, run: SyntheticRun, folder: Path) -> Outcome:
    return result(judged(rule_id, run, folder, RULES)).verdict


def delayed_twice(*, by_a_later_leader: bool, known_for_ms: int) -> SyntheticRun:
    """A delayed message that is delivered twice, and known for so long when the fault comes."""
    stored: list[int] = []

    def live(run: SyntheticRun) -> None:
        fall_due(run, delay(run, "d0"))
        stored.append(run.entries[-1].t_append)
        if by_a_later_leader:
            run.elect("n2", run.term + 1)
        run.append([record(run, "d0")])

    run = SyntheticRun(live=live)
    run.faults[0]["t_effect"] = stored[0] + known_for_ms * MS
    return run


@pytest.mark.parametrize(
    ("by_a_later_leader", "known_for_ms", "outcome"),
    [
        (True, 30_001, Outcome.FAIL),
        (True, 29_999, Outcome.PASS),
        (False, 30_001, Outcome.PASS),
    ],
)
def test_k1934_is_about_later_leaders_and_what_is_long_known(
    tmp_path: Path, by_a_later_leader: bool, known_for_ms: int, outcome: Outcome
) -> None:
    run = delayed_twice(by_a_later_leader=by_a_later_leader, known_for_ms=known_for_ms)
    assert outcome_of("K1934", run, tmp_path) is outcome


@pytest.mark.parametrize(
    ("decided_ms", "asked_ms", "halves", "outcome"),
    [
        (2_900, 30_100, 1, Outcome.FAIL),
        (3_100, 30_100, 1, Outcome.PASS),
        (2_900, 29_000, 1, Outcome.PASS),
        (2_900, 30_100, 2, Outcome.PASS),
    ],
)
def test_k1517_is_about_decisions_that_came_at_once(
    tmp_path: Path, decided_ms: int, asked_ms: int, halves: int, outcome: Outcome
) -> None:
    """The timeout is 6 s, a check interval 30 s."""
    run = SyntheticRun()
    half = run.find("half", "x0.v")
    decide = run.find("decide", tx=half["tx"])
    decide["t_complete"] = half["t_complete"] + decided_ms * MS
    check = run.op("t1-check", "check", tx=half["tx"], decision="commit", node="n0")
    check |= {"op": len(run.ops), "t_invoke": decide["t_complete"] + asked_ms * MS}
    check["t_complete"] = check["t_invoke"] + MS
    if halves == 2:
        run.log += [row | {"index": row["index"] - 1} for row in run.logged("x0.v", "half")]
    assert outcome_of("K1517", run, tmp_path) is outcome


def unanswered(run: SyntheticRun) -> None:
    request(run, "q0", None, "info")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(NO_CLUSTER, Outcome.FAIL), (None, Outcome.PASS), ("DeadlineError: late", Outcome.PASS)],
)
def test_k1901_is_about_requests_that_lack_something(
    tmp_path: Path, error: str | None, outcome: Outcome
) -> None:
    run = SyntheticRun(live=unanswered)
    run.find("deliver", "q0", client_group="responders")["error"] = error
    assert outcome_of("K1901", run, tmp_path) is outcome


def with_a_deletion(run: SyntheticRun) -> None:
    run.op("admin", "delete_topic", topic=TOPIC)


def begins_anew(run: SyntheticRun) -> None:
    """The decisions' queue loses its units, and numbers from 0 again."""
    run.cq = [row for row in run.cq if row["topic"] != OP]


def another_queue_begins_anew(run: SyntheticRun) -> None:
    run.cq = [row for row in run.cq if row["topic"] != TOPIC]


@pytest.mark.parametrize(
    ("damage", "outcome"),
    [(begins_anew, Outcome.FAIL), (another_queue_begins_anew, Outcome.PASS)],
)
def test_k2133_is_about_the_queue_of_decisions(
    tmp_path: Path, damage: Callable[[SyntheticRun], None], outcome: Outcome
) -> None:
    run = SyntheticRun(live=with_a_deletion)
    damage(run)
    assert outcome_of("K2133", run, tmp_path) is outcome


@pytest.mark.parametrize(
    ("first", "second", "changed", "outcome"),
    [
        ((0, 1), (0, 1, 2, 3), False, Outcome.FAIL),
        ((0, 1), (), False, Outcome.FAIL),
        ((), (0, 1), False, Outcome.PASS),
        ((0, 1), (0, 1), False, Outcome.PASS),
        ((0, 1), (0, 1, 2, 3), True, Outcome.PASS),
    ],
)
def test_k9403_is_about_topics_that_nobody_changes(
    tmp_path: Path,
    first: tuple[int, ...],
    second: tuple[int, ...],
    changed: bool,
    outcome: Outcome,
) -> None:
    run = SyntheticRun()
    view(run, "n1", first)
    if changed:
        change_topic(run, "create_topic")
    view(run, "n1", second)
    view(run, "ns-0", (0, 1, 2))
    assert outcome_of("K9403", run, tmp_path) is outcome


def read_the_dead(run: SyntheticRun) -> None:
    shown = [run.shown(rec) for rec in run.stored(0, DEAD)]
    run.op("dead", "poll", client_group="dead", topic=DEAD, queue=0, offset=0, messages=shown)


def leave_them_unread(run: SyntheticRun) -> None:
    pass


@pytest.mark.parametrize(
    ("read", "dead", "outcome"),
    [
        (read_the_dead, ("r2",), Outcome.PASS),
        (leave_them_unread, ("r2",), Outcome.FAIL),
        (leave_them_unread, (), Outcome.UNKNOWN),
    ],
)
def test_k3327_is_about_what_stands_and_is_not_shown(
    tmp_path: Path,
    read: Callable[[SyntheticRun], None],
    dead: tuple[str, ...],
    outcome: Outcome,
) -> None:
    run = consumer_run("a", live=read, dead=dead)
    run.manifest["consumer_groups"]["dead"] = {
        "kind": "cluster",
        "at_least_once": False,
        "ordered": False,
        "topics": [DEAD],
    }
    assert outcome_of("K3327", run, tmp_path) is outcome
