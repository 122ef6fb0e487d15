"""Histories that are legal, and rare enough to be forgotten: a half that was sent twice, a user who
may do one thing here and another there, a group that was deleted under its members.

Beside each of them stands the violation that it looks like.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.by_hand import appended, bare, judged_by, op, record, send, show
from tests.verify.few_rows import AT, GROUP, FewRows, message, owned
from tests.verify.synthetic import HALF, NODES, OP, TOPIC
from verify.verdict import Outcome

TIMES = {"timeout_ms": 6_000, "check_interval_ms": 30_000, "check_max": 15}


def settled_twice(first: str, dedupe: dict[str, int] | None) -> FewRows:
    """A half that was sent twice: the decision is on one of them, a check settles the other."""
    run = bare(dedupe=dedupe, transactions=TIMES)
    told = {"topic": TOPIC, "queue": 0, "tx": "x", "client_group": "producers"}
    sent = [message("x.v", None, tx="x")]
    op(run, "half", 1, 2, **told, type=first, messages=sent)
    op(run, "half", 3, 4, **told, offset=1, messages=sent, process="c2")
    told = {"tx": "x", "client_group": "producers", "decision": "commit"}
    op(run, "decide", 5, 6, **told, process="c2")
    op(run, "check", 40, 41, **told, offset=0, process="c.checks")
    for number in (0, 1):
        record(run, 1 + number, "x.v", number, kind="half", topic=HALF, tx="x")
    for number in (0, 1):
        record(run, 3 + 2 * number, "x.v", number, kind="final", tx="x")
        told = {"kind": "op", "topic": OP, "decision": "commit"}
        record(run, 4 + 2 * number, "x.v", number, tx="x", **told)
    appended(run, [1.5, 3.5, 5.5, 5.6, 40.5, 40.6])
    return run


@pytest.mark.parametrize("rule", ["T4", "T7", "T10"])
def test_a_half_that_may_stand_twice_is_settled_twice(rule: str, tmp_path: Path) -> None:
    for name, first, dedupe, expected in (
        ("twice", "info", None, Outcome.PASS),
        ("refused", "fail", None, Outcome.FAIL),
        ("known again", "info", {"window_ms": 600_000}, Outcome.FAIL),
    ):
        run = settled_twice(first, dedupe)
        assert judged_by(rule, run, tmp_path / name).verdict is expected


def test_a_user_may_send_to_one_topic_and_not_to_another(tmp_path: Path) -> None:
    for first, second, topic, outcome, expected in (
        ("allow", "deny", "Other", "ok", Outcome.PASS),
        ("allow", "deny", TOPIC, "ok", Outcome.FAIL),
        ("allow", "deny", None, "ok", Outcome.FAIL),
        ("deny", "allow", "Other", "fail", Outcome.PASS),
        ("deny", "allow", TOPIC, "fail", Outcome.FAIL),
    ):
        run = bare()
        user = {"client": "admin", "key": "alice", "node": "n0"}
        op(run, "account", 1, 2, **user, ref="1", topic=TOPIC, decision=first)
        op(run, "account", 8, 9, **user, ref="2", topic=topic, decision=second)
        status = "16" if outcome == "fail" else "SEND_OK"
        told = {"type": outcome, "status": status, "ref": "alice", "node": "n0"}
        op(run, "send", 30, 31, topic=TOPIC, queue=0, messages=[message("v", None)], **told)
        folder = tmp_path / f"{second}{topic}"
        assert judged_by("M4", run, folder).verdict is expected


def test_a_groups_retries_and_dead_letters_outlive_their_topic(tmp_path: Path) -> None:
    for name, told, expected in (
        ("dead", {"topic": "%DLQ%g"}, Outcome.PASS),
        ("retry", {"topic": "%RETRY%g"}, Outcome.PASS),
        ("hidden", {"offset": None, "reconsume": 1}, Outcome.PASS),
        ("shown", {}, Outcome.FAIL),
        ("shown without its place", {"offset": None}, Outcome.FAIL),
    ):
        run = bare()
        send(run, 1, "v", 0)
        op(run, "delete_topic", 50, 51, client="admin", topic=TOPIC, node="n0")
        shown = [message("v", 0) | told]
        op(run, "deliver", 150, 151, topic=told.get("topic", TOPIC), queue=0, messages=shown)
        record(run, 1, "v", 0)
        appended(run, [1.0005])
        assert judged_by("M1", run, tmp_path / name).verdict is expected


def test_a_group_that_is_deleted_with_its_offsets_begins_anew(tmp_path: Path) -> None:
    for at, decision, expected in (
        (10, "clean", Outcome.PASS),
        (10, "keep", Outcome.FAIL),
        (2, "clean", Outcome.FAIL),
    ):
        run = bare()
        send(run, 1, "v", 0)
        op(run, "delete_group", at, at + 0.5, client="admin", decision=decision, node="n0")
        show(run, "deliver", 5, "v", 0)
        show(run, "deliver", 20, "v", 0, client="d")
        assert judged_by("A12", run, tmp_path / f"{at}{decision}").verdict is expected


def test_an_assign_for_another_group_excuses_no_repeat(tmp_path: Path) -> None:
    """One process is a member of two groups."""
    for group, expected in (("g", Outcome.PASS), ("h", Outcome.FAIL)):
        run = bare(consumer_groups={"g": GROUP, "h": GROUP})
        send(run, 1, "v", 0)
        op(run, "assign", 2, 2.5, assigned=owned())
        show(run, "deliver", 5, "v", 0)
        op(run, "assign", 7, 7.5, client_group=group, assigned=owned())
        show(run, "deliver", 20, "v", 0)
        assert judged_by("A12", run, tmp_path / group).verdict is expected


def test_a_wiped_voter_votes_again_under_its_name(tmp_path: Path) -> None:
    """To R3 it is another member; its vote is not to be given twice all the same (decision 7)."""
    run = bare()
    told = {"broker_group": AT, "node": "n2"}
    start = {"event": "start", "index": 0, "term": 0, "voters": list(NODES)}
    vote = {"event": "vote", "term": 5, "last_index": 0, "last_term": 0}
    run.faults[0] |= {"name": "wiped-store", "targets": [f"{AT}-n2"], "effect": "taken"}
    run.raft = [
        told | {"incarnation": 1, "seq": 1, "t": 0} | start,
        told | {"incarnation": 1, "seq": 2, "t": 1, "peer": "n0"} | vote,
        told | {"incarnation": 2, "seq": 3, "t": 2} | start,
        told | {"incarnation": 2, "seq": 4, "t": 3, "peer": "n1"} | vote,
    ]
    assert judged_by("R3", run, tmp_path / "term").verdict is Outcome.PASS
    assert judged_by("R2", run, tmp_path / "vote").verdict is Outcome.FAIL
