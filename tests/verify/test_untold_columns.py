"""Columns that the format lets a run leave untold: what a rule can't know is no violation, and what
it can know all the same still is one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.by_hand import bare, judged_by, op, record, send, show
from tests.verify.few_rows import AT, GROUP, FewRows, message
from tests.verify.synthetic import TOPIC
from verify.verdict import Outcome

OTHER = "broker-b"


@pytest.mark.parametrize(
    ("told", "shown", "expected"),
    [
        (None, (AT, OTHER), Outcome.PASS),
        (None, (AT, AT), Outcome.FAIL),
        (None, (None, None), Outcome.PASS),
        (AT, (None, None), Outcome.FAIL),
    ],
)
def test_the_messages_of_a_delivery_tell_its_queue(
    told: str | None, shown: tuple[str | None, str | None], expected: Outcome, tmp_path: Path
) -> None:
    run = bare(consumer_groups={"g": GROUP | {"exclusive": True}})
    for number, group in enumerate(shown):
        messages = [message(f"v{number}", 0, broker_group=group)]
        place = {"broker_group": told, "topic": TOPIC, "queue": 0}
        op(run, "deliver", 5 + number, 7 + number, client=f"c{number}", messages=messages, **place)
    assert judged_by("C3", run, tmp_path).verdict is expected


def dead(run: FewRows, at: float, offset: int, group: str | None) -> None:
    found = [message("v", offset, topic="%DLQ%g", broker_group=group)]
    place = {"broker_group": group, "topic": "%DLQ%g", "queue": 0, "offset": offset}
    op(run, "poll", at, at + 1, client_group="tool", messages=found, **place)


def test_a_dead_letter_whose_broker_group_is_not_told_stands_once(tmp_path: Path) -> None:
    for name, offset, expected in (("one", 0, Outcome.PASS), ("another", 1, Outcome.FAIL)):
        run = bare(consumer_groups={"g": GROUP | {"retries_max": 0}})
        send(run, 1, "v", 0)
        show(run, "deliver", 50, "v", 0, type="fail")
        record(run, 1, "v", 0)
        record(run, 2, "v", 0, topic="%DLQ%g")
        dead(run, 150, offset, None)
        assert judged_by("C7", run, tmp_path / name).verdict is expected


def test_a_fetch_that_does_not_tell_its_queue_answers_for_none(tmp_path: Path) -> None:
    for group, expected in ((None, Outcome.PASS), (OTHER, Outcome.FAIL)):
        run = bare()
        told = {"topic": TOPIC, "queue": 0, "offset": 1}
        op(run, "commit_offset", 5, 6, **told)
        op(run, "fetch_offset", 7, 8, broker_group=group, **told)
        stored = {"kind": "offset", "client_group": "g", "uniq_key": None, "cq_ok": None}
        record(run, 1, "v", 1, **stored)
        assert judged_by("S5", run, tmp_path / str(group)).verdict is expected


def test_a_handout_that_tells_no_count_is_one(tmp_path: Path) -> None:
    for count, expected in ((1, Outcome.PASS), (2, Outcome.FAIL)):
        run = bare()
        send(run, 1, "v", 0)
        for number, told in enumerate((None, count)):
            row = op(run, "pop", 5 + 20 * number, 6 + 20 * number, topic=TOPIC, queue=None)
            row |= {"due": row["t_invoke"] + 10**9, "ref": str(number)}
            row["messages"] = [message("v", 0, reconsume=told)]
        assert judged_by("P5", run, tmp_path / str(count)).verdict is expected


@pytest.mark.parametrize("rule", ["T14", "T19"])
def test_checks_that_do_not_tell_their_half_may_be_of_several(rule: str, tmp_path: Path) -> None:
    """Two halves are counted each from one."""
    for name, outcomes, offset, expected in (
        ("several", ("info", "ok"), None, Outcome.PASS),
        ("one", ("fail", "ok"), None, Outcome.FAIL),
        ("told", ("info", "ok"), 0, Outcome.FAIL),
    ):
        times = {"timeout_ms": 6_000, "check_interval_ms": 30_000, "check_max": 15}
        run = bare(transactions=times, dedupe=None)
        told = {"topic": TOPIC, "queue": 0, "tx": "x", "client_group": "producers"}
        for number, outcome in enumerate(outcomes):
            sent = [message("x.v", None, tx="x")]
            op(run, "half", 1 + number, 1.5 + number, type=outcome, messages=sent, **told)
        for number in range(3):
            asked = {"decision": "unknown", "node": "n0", "status": "1", "offset": offset}
            op(run, "check", 20 + number, 20.5 + number, **told | asked)
        assert judged_by(rule, run, tmp_path / name).verdict is expected


def test_a_reply_that_is_read_where_it_stands_is_no_message_of_anybody(tmp_path: Path) -> None:
    for topic, expected in (
        ("DefaultCluster_REPLY_TOPIC", Outcome.PASS),
        (TOPIC, Outcome.FAIL),
        ("%RETRY%g", Outcome.FAIL),
        (None, Outcome.FAIL),
    ):
        run = bare()
        shown = [message("r", 0, topic=topic)]
        op(run, "poll", 150, 151, topic=topic, queue=0, offset=0, messages=shown, final=True)
        record(run, 1, "r", 0, topic="DefaultCluster_REPLY_TOPIC")
        assert judged_by("A11", run, tmp_path / str(topic)).verdict is expected


def test_a_message_without_a_value_is_nobodys_and_its_receipt_is_not(tmp_path: Path) -> None:
    run = bare()
    send(run, 1, "v", 0)
    shown = [message("", 0) | {"value": None, "uniq_key": None}]
    popped = op(run, "pop", 5, 6, topic=TOPIC, queue=None, due=10**10, ref="r", messages=shown)
    op(run, "ack", 7, 8, topic=TOPIC, queue=0, ref=popped["ref"], messages=shown)
    record(run, 1, "v", 0)
    assert judged_by("A11", run, tmp_path / "value").verdict is Outcome.FAIL
    assert judged_by("P7", run, tmp_path / "receipt").verdict is Outcome.PASS
    run.ops[-1]["ref"] = "another"
    assert judged_by("P7", run, tmp_path / "another").verdict is Outcome.FAIL


def test_a_record_without_a_value_has_its_key_as_one(tmp_path: Path) -> None:
    for key, expected in (("v", Outcome.PASS), ("K.v", Outcome.FAIL)):
        run = bare()
        send(run, 1, "v", 0)["messages"][0]["uniq_key"] = "v"
        show(run, "poll", 5, "v", 0)["messages"][0]["uniq_key"] = "v"
        record(run, 1, "v", 0, uniq_key=key)
        for row in run.log:
            row["value"] = None
        assert judged_by("A11", run, tmp_path / key).verdict is expected
