"""Where the rules on delays and requests must stay silent, can't tell, or are left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.verify.delayed_rows import (
    LEVELS,
    delay,
    fall_due,
    recall,
    record,
    reply,
    request,
    wait_until,
)
from tests.verify.one_rule import judged, result
from tests.verify.synthetic import MS, NODES, TOPIC, SyntheticRun
from verify.verdict import Outcome

Change = Callable[[SyntheticRun], None]
SILENT: list[tuple[str, Change]] = []
UNKNOWN: list[tuple[str, str, Change]] = []


def silent(*rule_ids: str) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        SILENT.extend((rule_id, change) for rule_id in rule_ids)
        return change

    return register


def unknown(rule_id: str, reason: str) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        UNKNOWN.append((rule_id, reason, change))
        return change

    return register


@silent("D1")
def delivered_as_early_as_is_allowed(run: SyntheticRun) -> None:
    fall_due(run, delay(run, "d7"), early_ms=1)


@silent("D1")
def retry_is_due_later_than_the_attempt_that_was_stored(run: SyntheticRun) -> None:
    first = delay(run, "d7", outcome="info")
    again = run.op("p7~1", "delay", topic=TOPIC, queue=0, messages=first["messages"])
    again["due"] = again["t_invoke"] + 20 * MS
    fall_due(run, first)


@silent("D2")
def recall_that_nobody_answered_did_nothing(run: SyntheticRun) -> None:
    row = delay(run, "d7")
    recall(run, "d7", "info", process="p8b")
    recall(run, "d7", "fail")
    fall_due(run, row)
    recall(run, "d7", "fail")
    delay(run, "d8")
    recall(run, "d8")


@silent("D3", "D6")
def recall_that_nobody_answered_was_done(run: SyntheticRun) -> None:
    row = delay(run, "d7")
    recall(run, "d7", "info", process="p8b")
    wait_until(run, row["due"] + 10 * MS)
    recall(run, "d7", "fail")


@silent("D6")
def recall_refused_and_it_came(run: SyntheticRun) -> None:
    fall_due(run, delay(run, "d7"))
    recall(run, "d7", "fail")


@silent("D3")
def message_went_with_its_topic(run: SyntheticRun) -> None:
    fall_due(run, delay(run, "d8"))
    delay(run, "d7")
    deleted = run.op("a1", "delete_topic", "info", topic=TOPIC, client_group="tools")
    deleted["t_complete"] = None


@silent("D3")
def delay_of_unknown_outcome_never_came(run: SyntheticRun) -> None:
    delay(run, "d7", outcome="info")
    fall_due(run, delay(run, "d8"))


@silent("D4")
def sent_back_by_a_consumer_and_waits_again(run: SyntheticRun) -> None:
    fall_due(run, delay(run, "d7", topic=LEVELS))
    run.append([record(run, "d7", 0, LEVELS)])
    run.append([record(run, "d7", 2, LEVELS)])


@silent("D5")
def late_by_no_more_than_is_allowed(run: SyntheticRun) -> None:
    wait_until(run, run.now + 100 * MS)
    row = delay(run, "d7")
    latest = row["t_complete"] + 20 * MS
    wait_until(run, latest + 5_000 * MS - MS)  # it is appended a millisecond later
    fall_due(run, row)


@silent("D5")
def late_by_a_fault(run: SyntheticRun) -> None:
    wait_until(run, run.now + 100 * MS)
    row = delay(run, "d7")
    at = row["due"] + 4_000 * MS
    run.faults.append(run.faults[0] | {"fault": 2, "t_start": at, "t_healed": at + 1})
    wait_until(run, row["due"] + 9_000 * MS)
    fall_due(run, row)


@silent("C11")
def request_delivered_twice_and_answered_by_the_first(run: SyntheticRun) -> None:
    request(run, "q7", "a-q7")
    again = run.find("deliver", "q7", client_group="responders")
    place = {name: again[name] for name in ("topic", "queue", "messages")}
    run.op("r2", "deliver", client_group="responders", ref=f"{run.name}.a2", **place)


@silent("C11")
def responder_died_after_it_had_answered(run: SyntheticRun) -> None:
    request(run, "q7", "a-q7")
    run.find("deliver", "q7", client_group="responders").update(type="info", t_complete=None)


@silent("C16")
def reply_was_refused_or_came_before_the_client_was_gone(run: SyntheticRun) -> None:
    request(run, "q7", None, "info", status="GONE")
    reply(run, "q7", "fail")
    row = request(run, "q8", None, "info", status="GONE")
    row["t_complete"] = reply(run, "q8")["t_complete"] + 1
    reply(run, "q9")


@silent("C16")
def reply_to_a_request_of_unknown_outcome(run: SyntheticRun) -> None:
    """The broker had not acknowledged it: the client did not wait for an answer any more."""
    row = request(run, "q7", None, "info")
    row["t_complete"] = reply(run, "q7")["t_complete"] + 1


@unknown("D3", "too shortly before the end")
def fell_due_as_the_drain_began(run: SyntheticRun) -> None:
    delay(run, "d7")


@silent("D3", "D6")
def due_when_the_run_is_over(run: SyntheticRun) -> None:
    """Nobody can be shown it yet, whatever became of it."""
    for value in ("d7", "d8"):
        row = delay(run, value)
        row["due"] += 3_600_000 * MS
    recall(run, "d8", "fail")


@unknown("D6", "too shortly before the end")
def recall_refused_as_the_drain_began(run: SyntheticRun) -> None:
    delay(run, "d7")
    recall(run, "d7", "fail")


def _name(case: object) -> str | None:
    return getattr(case, "__name__", None)


@pytest.mark.parametrize(("rule_id", "change"), SILENT, ids=_name)
def test_stays_silent(rule_id: str, change: Change, tmp_path: Path) -> None:
    run = SyntheticRun(live=change)
    found = result(judged(rule_id, run, tmp_path))
    assert found.verdict is Outcome.PASS, (found.reason, found.witnesses)
    assert found.examined > 0


@pytest.mark.parametrize(("rule_id", "reason", "change"), UNKNOWN, ids=_name)
def test_can_not_tell(rule_id: str, reason: str, change: Change, tmp_path: Path) -> None:
    found = result(judged(rule_id, SyntheticRun(live=change), tmp_path))
    assert found.verdict is Outcome.UNKNOWN, found.witnesses
    assert reason in str(found.reason)


def test_what_was_not_drained_is_not_called_lost(tmp_path: Path) -> None:
    run = SyntheticRun(live=_lost)
    for queue in run.manifest["queues"]:
        queue["drained"] = False
    found = result(judged("D3", run, tmp_path))
    assert found.verdict is Outcome.UNKNOWN
    assert "not drained" in str(found.reason)


def test_what_retention_may_have_taken_is_not_called_lost(tmp_path: Path) -> None:
    run = SyntheticRun(live=_lost)
    run.log = [row for row in run.log if row["node"] != NODES[2] or row["index"] > 3]
    assert result(judged("D3", run, tmp_path)).verdict is Outcome.PASS


def _lost(run: SyntheticRun) -> None:
    row = delay(run, "d7")
    wait_until(run, row["due"] + 100 * MS)


def test_a_recall_that_came_too_late_to_count_proves_nothing(tmp_path: Path) -> None:
    """Of a system that takes a recall only some time before the message is due."""

    def recalled_shortly_before(run: SyntheticRun) -> None:
        row = delay(run, "d7", ms=50)
        wait_until(run, row["due"] - 10 * MS)
        recall(run, "d7")
        fall_due(run, row)

    run = SyntheticRun(live=recalled_shortly_before)
    assert result(judged("D2", run, tmp_path / "any")).verdict is Outcome.FAIL
    run.manifest["delays"]["recall_ms"] = 20
    assert result(judged("D2", run, tmp_path / "some")).verdict is Outcome.PASS


@pytest.mark.parametrize("rule_id", ["D1", "D2", "D3", "D4", "D5", "D6", "C11", "C16"])
def test_is_left_out_without_delays_and_requests(rule_id: str, tmp_path: Path) -> None:
    found = judged(rule_id, SyntheticRun(), tmp_path)
    assert [rule.id for rule in found.left_out] == [rule_id]


def test_delays_are_left_out_where_the_manifest_does_not_tell_of_them(tmp_path: Path) -> None:
    run = SyntheticRun(live=_lost)
    del run.manifest["delays"]
    assert not judged("D3", run, tmp_path).results
