"""Where a rule must stay silent, can't tell, or is left out: the edges that no plant shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.verify.one_rule import judged, result
from tests.verify.plants import (
    appended,
    ask_again,
    check_behind_its_decision,
    discard_unasked,
    immune_half,
    number_checks,
    share_a_queue,
    stay_alive,
    tell_in_vain,
)
from tests.verify.synthetic import MS, TOPIC, Row, SyntheticRun
from verify.verdict import Outcome

Change = Callable[[SyntheticRun], None]
SILENT: list[tuple[str, Change]] = []
UNKNOWN: list[tuple[str, str, Change]] = []
LEFT_OUT: list[tuple[str, Change]] = []


def silent(rule_id: str) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        SILENT.append((rule_id, change))
        return change

    return register


def unknown(rule_id: str, reason: str) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        UNKNOWN.append((rule_id, reason, change))
        return change

    return register


def left_out(*rule_ids: str) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        LEFT_OUT.extend((rule_id, change) for rule_id in rule_ids)
        return change

    return register


def _limit(run: SyntheticRun, name: str, value: float) -> None:
    run.manifest["limits"] = run.manifest["limits"] | {name: value}


def _unread(run: SyntheticRun, value: str) -> None:
    named = f"{run.name}.{value}"
    for op in run.ops:
        if op["f"] in {"poll", "deliver"}:
            op["messages"] = [m for m in op.get("messages") or () if m["value"] != named]


def _append_ops(run: SyntheticRun, number: int) -> None:
    """Numbers the last operations, which came after the run had been numbered."""
    for place, op in enumerate(run.ops[-number:]):
        op["op"] = len(run.ops) + place


# T13, T18: what was refused or is unknown decides nothing; a tenth of a time is the clocks'.


@silent("T13")
def contrary_decision_is_refused(run: SyntheticRun) -> None:
    half = run.half("t13", "x13", 0)
    run.decide("t13", half, "commit")
    tell_in_vain(run, half, "rollback", "fail")
    _append_ops(run, 3)


@silent("T13")
def contrary_decision_is_not_answered(run: SyntheticRun) -> None:
    half = run.half("t13", "x13", 0)
    run.decide("t13", half, "commit")
    tell_in_vain(run, half, "rollback", "info")
    _append_ops(run, 3)


@silent("T13")
def same_decision_is_acknowledged_again(run: SyntheticRun) -> None:
    half = run.half("t13", "x13", 0)
    run.decide("t13", half, "rollback")
    tell_in_vain(run, half, "rollback", "ok")
    _append_ops(run, 3)


@silent("T18")
def asked_about_within_the_last_tenth(run: SyntheticRun) -> None:
    immune_half(run, asked_after_ms=2_900)
    _append_ops(run, 2)


@silent("T6")
def half_that_wants_to_be_left_alone(run: SyntheticRun) -> None:
    half = run.half("t6", "x6", 0)
    half["due"] = half["t_invoke"] + 60_000 * MS
    stay_alive(run, "x6", 80)
    _append_ops(run, 5)


# T7, T12: what two nodes or two clients say is in no order; what no log has is nobody's.


@silent("T19")
def asked_twice_in_an_interval(run: SyntheticRun) -> None:
    ask_again(run, (10_000, "n1"), (1_000, "n1"), (30_000, "n1"))


@silent("T19")
def asked_by_one_leader_after_another(run: SyntheticRun) -> None:
    ask_again(run, (10_000, "n1"), (1_000, "n2"), (1_000, "n1"))


@silent("T14")
def checks_are_counted_on(run: SyntheticRun) -> None:
    number_checks(run, "1", "2")


@left_out("T14")
def frames_arrived_twice(run: SyntheticRun) -> None:
    number_checks(run, "1", "1")
    run.faults[0]["name"] = "duplicate-frames"


@silent("T7")
def asked_by_another_node_than_acknowledged(run: SyntheticRun) -> None:
    check_behind_its_decision(run)["node"] = "n2"


@silent("T7")
def another_client_is_asked_than_decided(run: SyntheticRun) -> None:
    check_behind_its_decision(run)["client"] = f"{run.name}.another"


@silent("T7")
def asked_when_the_acknowledgement_came(run: SyntheticRun) -> None:
    check_behind_its_decision(run)["t_invoke"] -= 1


@silent("T7")
def broker_of_another_system_checks_beside_what_it_is_told(run: SyntheticRun) -> None:
    check_behind_its_decision(run)
    run.manifest["system"] = "another"


@silent("T12")
def check_names_a_half_that_no_log_has(run: SyntheticRun) -> None:
    run.find("check", tx=f"{run.name}.x2")["offset"] = 1_000


# R5, R6, R7, S3: appends that tell no chain show nothing that could be compared.


@unknown("R5", "does not tell of")
@unknown("R6", "does not tell of")
@unknown("R7", "does not tell of")
@unknown("S3", "does not tell of")
def appends_tell_no_chain(run: SyntheticRun) -> None:
    for event in run.raft:
        if event["event"] == "append":
            event["chain"] = None


# A5: what can't be told of an undrained queue, or without a log of its end.


@unknown("A5", "not drained")
def end_of_a_queue_without_a_log(run: SyntheticRun) -> None:
    """Something was acknowledged at the end that was told, so the last read came too early."""
    _unread(run, "v12")
    for queue in run.manifest["queues"]:
        if (queue["topic"], queue["queue"]) == (TOPIC, 0):
            queue["max_offset"] -= 1
    run.manifest["system"] = "another"
    run.log = []


@unknown("A5", "no read was recorded")
def nobody_read(run: SyntheticRun) -> None:
    run.ops = [op for op in run.ops if op["f"] not in {"poll", "deliver"}]


def test_what_nobody_could_be_shown_is_not_called_lost(tmp_path: Path) -> None:
    run = SyntheticRun()
    nobody_read(run)
    found = result(judged("A5", run, tmp_path))
    assert {witness["lost"] for witness in found.witnesses} == {False}


@pytest.mark.parametrize(("groups", "lost"), [(("pull",), {False}), ((), {True})])
def test_what_nobody_was_shown_is_lost(
    groups: tuple[str, ...], lost: set[bool], tmp_path: Path
) -> None:
    """As A4 says; what only one group lacks is not."""
    run = SyntheticRun()
    named = f"{run.name}.v5"
    for op in run.ops:
        if op["f"] in {"poll", "deliver"} and (not groups or op["client_group"] in groups):
            op["messages"] = [m for m in op.get("messages") or () if m["value"] != named]
    found = result(judged("A5", run, tmp_path))
    assert found.verdict is Outcome.FAIL
    assert {witness["lost"] for witness in found.witnesses} == lost


# A6 and A12: an assign whose outcome is not known may have come into force.


def _start_again_at_term_0(run: SyntheticRun, fault: str) -> None:
    """n2 starts on an empty store, after a fault of that name on it."""
    target = [f"{run.group}-n2"]
    run.faults.append(run.faults[0] | {"fault": 2, "name": fault, "targets": target})
    run.event("n2", "start", index=0, entry_term=0, chain=0, term=0, incarnation=2, voters=[])


@silent("R3")
@silent("R9")
def store_was_replaced_by_an_empty_one(run: SyntheticRun) -> None:
    _start_again_at_term_0(run, "replace-member")


@silent("R3")
def no_fault_is_listed(run: SyntheticRun) -> None:
    run.faults.clear()


def test_a_term_that_was_only_forgotten_is_accused(tmp_path: Path) -> None:
    run = SyntheticRun()
    _start_again_at_term_0(run, "kill")
    assert result(judged("R3", run, tmp_path)).verdict is Outcome.FAIL


def _poll_again_after_an_assign(run: SyntheticRun) -> None:
    assign = run.assign("c1", "pull", (0,))
    assign |= {"type": "info", "t_complete": None}
    run.poll("c1", "pull", 0, 0)
    _append_ops(run, 2)


silent("A6")(_poll_again_after_an_assign)
silent("A12")(_poll_again_after_an_assign)


@silent("A8")
def retry_is_answered_with_the_old_offset(run: SyntheticRun) -> None:
    run.op("p1c", "send", topic=TOPIC, queue=0, messages=run.find("send", "v0")["messages"])
    _append_ops(run, 1)


# A14: acknowledged that long ago and no longer, or read already.


def _poll_nothing(run: SyntheticRun, lag_ms: int) -> None:
    """An empty poll whose invoke is `lag_ms` after the last acknowledgement."""
    run.tick(20)
    run.poll("c1", "pull", 1, 0, 0)
    sends = [op for op in run.ops if op["f"] == "send" and op["type"] == "ok" and op["queue"] == 1]
    first = min(op["t_complete"] for op in sends)
    run.ops[-1]["t_invoke"] = first + lag_ms * MS
    run.ops[-1]["t_complete"] = run.ops[-1]["t_invoke"] + MS
    run.now = run.ops[-1]["t_complete"]


class _Lag:
    def __init__(self, ms: int) -> None:
        self.ms = ms

    def __call__(self, run: SyntheticRun) -> None:
        _poll_nothing(run, self.ms)


@pytest.mark.parametrize(("ms", "outcome"), [(500, Outcome.PASS), (501, Outcome.FAIL)])
def test_a_poll_may_lag_as_long_as_it_may(ms: int, outcome: Outcome, tmp_path: Path) -> None:
    run = SyntheticRun(live=_Lag(ms))
    _limit(run, "lag_ms", 500)
    assert result(judged("A14", run, tmp_path)).verdict is outcome


@silent("A14")
def poll_below_what_its_group_had_read(run: SyntheticRun) -> None:
    """A new owner begins at an old position."""
    run.tick(6000)
    run.poll("c9", "pull", 0, 0, 2)
    _append_ops(run, 1)


@left_out("A14")
def without_limits(run: SyntheticRun) -> None:
    run.manifest["limits"] = None


# A16: what is measured, and what a run has to show.


@left_out("A16")
def measured_only(run: SyntheticRun) -> None:
    run.manifest["limits"] = None
    run.find("send", "v10")["t_complete"] += 60_000 * MS


@unknown("A16", "no fault was taken")
def nothing_was_broken(run: SyntheticRun) -> None:
    run.manifest["limits"] = None
    run.faults[0]["effect"] = "unknown"


@unknown("A16", "after the last fault had healed")
def nothing_was_written_after_the_heal(run: SyntheticRun) -> None:
    run.faults[0]["t_healed"] = run.manifest["phases"]["load"][1]


@unknown("A16", "after the last fault had healed")
def no_heal_was_seen(run: SyntheticRun) -> None:
    run.faults[0]["t_healed"] = None


@silent("A16")
def readers_write_nothing(run: SyntheticRun) -> None:
    """They were there from end to end, and only who writes is measured."""
    load = run.manifest["phases"]["load"]
    load[1] += 10_000 * MS
    run.now = load[1] - MS
    run.op("c1", "query", topic=TOPIC, key="none", messages=[], client_group="pull")
    _append_ops(run, 1)


@pytest.mark.parametrize(
    ("failed", "outcome"), [(1, Outcome.PASS), (2, Outcome.FAIL), (0, Outcome.PASS)]
)
def test_the_share_of_sends_outside_of_faults(
    failed: int, outcome: Outcome, tmp_path: Path
) -> None:
    """20 sends outside of the fault's window, of which 95 % have to be ok; more within it."""
    run = SyntheticRun()
    fault = run.faults[0]
    inside = [
        op
        for op in run.ops
        if op["f"] == "send" and fault["t_start"] <= op["t_invoke"] <= fault["t_healed"]
    ]
    assert [op["type"] for op in inside] == ["info"]
    for op in run.ops:
        if op["f"] == "send" and op["type"] == "fail":
            op["f"] = "local"
    outside = [op for op in run.ops if op["f"] == "send" and op not in inside]
    for number in range(20 - len(outside)):
        extra = outside[0] | {"op": 1000 + number, "process": f"{run.name}.x{number}"}
        run.ops.append(extra | ({"type": "fail"} if number < failed else {}))
    _limit(run, "acked_share_min", 0.95)
    found = result(judged("A16", run, tmp_path))
    assert found.verdict is outcome, (found.reason, found.witnesses)
    if failed == 2:
        assert [(w["sends"], w["acked"]) for w in found.witnesses] == [(20, 18)]


# A17: only where somebody looked.


@left_out("A17")
def nobody_looked_who_caught_up(run: SyntheticRun) -> None:
    del run.manifest["left_behind"]


# A18: contents that nobody can compare.


def _without_digests(rows: list[Row]) -> None:
    for row in rows:
        row.pop("digest", None)
        for message in row.get("messages") or ():
            message["digest"] = None


@silent("A18")
def one_attempt_without_a_digest(run: SyntheticRun) -> None:
    run.find("deliver", "v2")["messages"][0]["digest"] += 1
    sent = run.find("send", "v2")
    again = sent | {"op": len(run.ops) + 1, "process": f"{run.name}.p0", "type": "fail"}
    run.ops.append(again | {"messages": [sent["messages"][0] | {"digest": None}]})


@silent("A18")
def contents_of_another_attempt(run: SyntheticRun) -> None:
    shown = run.find("deliver", "v2")["messages"][0]
    shown["digest"] += 1
    sent = run.find("send", "v2")
    again = sent | {"op": len(run.ops) + 1, "process": f"{run.name}.p0", "type": "info"}
    run.ops.append(again | {"messages": [dict(shown)]})


@silent("A18")
def contents_that_one_replica_can_not_read(run: SyntheticRun) -> None:
    run.logged("v6", "message")[0]["digest"] = None


@silent("A18")
def contents_of_which_another_system_takes_no_digest(run: SyntheticRun) -> None:
    run.manifest["system"] = "other"
    for row in run.logged("v6", "message"):
        row["digest"] = None


@silent("A18")
def logs_of_which_nobody_took_a_digest(run: SyntheticRun) -> None:
    _without_digests(run.log)


def test_contents_are_compared_without_the_digests_of_logs(tmp_path: Path) -> None:
    run = SyntheticRun()
    _without_digests(run.log)
    run.find("deliver", "v2")["messages"][0]["digest"] += 1
    (witness,) = result(judged("A18", run, tmp_path)).witnesses
    assert witness["value"] == f"{run.name}.v2"


@left_out("A18")
def operations_of_which_nobody_took_a_digest(run: SyntheticRun) -> None:
    _without_digests(run.ops)


@left_out("A18")
def no_read_has_a_digest(run: SyntheticRun) -> None:
    _without_digests([op for op in run.ops if op["f"] in {"poll", "deliver", "query"}])
    _without_digests(run.log)


@unknown("A18", "of nothing that was sent")
def nothing_sent_has_a_digest(run: SyntheticRun) -> None:
    _without_digests([op for op in run.ops if op["f"] in {"send", "half"}])


# A19: stored at the very time, or by an attempt that had not failed.


@silent("A19")
def stored_as_it_was_sent(run: SyntheticRun) -> None:
    run.find("send", "v6")["t_invoke"] = appended(run, "v6")


@silent("A19")
def stored_before_by_a_clock_that_is_so_far_off(run: SyntheticRun) -> None:
    run.manifest["clock_error_ns"] = 1000
    run.find("send", "v6")["t_invoke"] = appended(run, "v6") + 1000


@silent("A19")
def one_of_two_attempts_failed(run: SyntheticRun) -> None:
    first = run.find("send", "v6")
    later = {"op": len(run.ops) + 1, "type": "fail", "t_invoke": first["t_complete"] + 1}
    run.ops.append(first | later | {"t_complete": first["t_complete"] + 2})


# A22: both for as long as a rebalance may take, or with a fault between.


@silent("A22")
def two_owners_while_queues_are_dealt_anew(run: SyntheticRun) -> None:
    share_a_queue(run, "ok", 25_000)


@silent("A22")
def two_owners_on_either_side_of_a_fault(run: SyntheticRun) -> None:
    share_a_queue(run, "ok", 40_000)
    window = {"t_start": run.now - 20_000 * MS, "t_healed": run.now - 15_000 * MS}
    run.faults.append(run.faults[0] | {"fault": 2, "effect": "unknown"} | window)


@left_out("A22")
def nobody_was_assigned_anything(run: SyntheticRun) -> None:
    run.ops = [op for op in run.ops if op["f"] != "assign"]


def _name(case: object) -> str | None:
    return getattr(case, "__name__", None)


@pytest.mark.parametrize(("rule_id", "change"), SILENT, ids=_name)
def test_stays_silent(rule_id: str, change: Change, tmp_path: Path) -> None:
    run = SyntheticRun()
    change(run)
    found = result(judged(rule_id, run, tmp_path))
    assert found.verdict is Outcome.PASS, (found.reason, found.witnesses)
    assert found.examined > 0


@pytest.mark.parametrize(("rule_id", "reason", "change"), UNKNOWN, ids=_name)
def test_can_not_tell(rule_id: str, reason: str, change: Change, tmp_path: Path) -> None:
    run = SyntheticRun()
    change(run)
    found = result(judged(rule_id, run, tmp_path))
    assert found.verdict is Outcome.UNKNOWN, found.witnesses
    assert reason in str(found.reason)


@pytest.mark.parametrize(("rule_id", "change"), LEFT_OUT, ids=_name)
def test_is_left_out(rule_id: str, change: Change, tmp_path: Path) -> None:
    run = SyntheticRun()
    change(run)
    found = judged(rule_id, run, tmp_path)
    assert not found.results
    assert [rule.id for rule in found.left_out] == [rule_id]


@pytest.mark.parametrize(
    ("clients", "verdict"), [(15, Outcome.PASS), (14, Outcome.FAIL)], ids=["each", "one too few"]
)
def test_a_check_may_have_been_sent_to_a_client_as_it_ended(
    clients: int, verdict: Outcome, tmp_path: Path
) -> None:
    """Nobody was asked 15 times; so many clients of the group had their last operation meanwhile,
    one of them that of the half itself."""

    def discard(run: SyntheticRun) -> None:
        half = discard_unasked(run)
        discarded = run.now
        for number in range(clients - 1):
            last = run.op(f"gone-{number}", "local", client=f"gone-{number}", tx=f"other-{number}")
            last["client_group"] = half["client_group"]
            last |= {"t_invoke": half["t_complete"], "t_complete": half["t_complete"] + 1}
        assert half["t_complete"] + 1 < discarded

    found = result(judged("T8", SyntheticRun(live=discard), tmp_path))
    assert found.verdict is verdict, (found.reason, found.witnesses)


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [("ok", Outcome.PASS), ("info", Outcome.PASS), ("fail", Outcome.FAIL), (None, Outcome.FAIL)],
)
def test_an_operator_may_discard_before_any_check(
    outcome: str | None, verdict: Outcome, tmp_path: Path
) -> None:
    def discard(run: SyntheticRun) -> None:
        half = discard_unasked(run)
        if outcome is not None:
            run.op("by-hand", "discard", outcome, tx=half["tx"])

    found = result(judged("T8", SyntheticRun(live=discard), tmp_path))
    assert found.verdict is verdict, (found.reason, found.witnesses)
