"""Where the rules of consumption (C3 to C15, M8) must stay silent, can't tell, or are left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.verify.consumer_plants import (
    commit_before,
    died_and_back,
    given_again,
    left_and_back,
    longpolls_of,
    refused_later,
    withheld,
)
from tests.verify.consumer_runs import (
    DRAINED_AT,
    RESET,
    RETRIED,
    TAGGED,
    TIMED,
    Change,
    add,
    assign,
    come_again_late,
    consumer_run,
    drop,
    of_group,
    ops_of,
    reset,
    reset_by_time,
    stored_at,
)
from tests.verify.synthetic import MS, SCHEMAS, TOPIC, Row, SyntheticRun
from verify.catalogue.rule_files import BUILT_IN_RULES, BUILT_IN_STAGES, read_rules, read_stages
from verify.engines.duckdb import DuckDBEngine
from verify.judge import judge_run
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles
from verify.verdict import CheckResult, Outcome

SILENT: list[tuple[str, Change, tuple[str, ...]]] = []


def results(rule_id: str, run: SyntheticRun, folder: Path) -> list[CheckResult]:
    """Judge `run` by one rule; a table without a row is not listed."""
    path = run.write(folder, tables=[name for name in SCHEMAS if getattr(run, name)])
    return judge_run(
        DuckDBEngine(folder),
        LocalFiles(path),
        load_manifest(LocalFiles(path)),
        rules=[rule for rule in read_rules(BUILT_IN_RULES) if rule.id == rule_id],
        stages=read_stages(BUILT_IN_STAGES),
        report=lambda text: None,
    ).results


def silent(rule_id: str, *dead: str) -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        SILENT.append((rule_id, change, dead or ("r2",)))
        return change

    return register


@silent("C17")
def answers_without_any_queue_of_the_group(run: SyntheticRun) -> None:
    """The route had nothing of it: then nobody gets anything."""
    for op in run.ops:
        if op.get("ref") == f"{run.name}.two":
            op["assigned"] = []


@silent("C17")
def round_that_was_not_answered(run: SyntheticRun) -> None:
    for op in run.ops:
        if op.get("ref") == f"{run.name}.one":
            op |= {"type": "info", "assigned": None}


@silent("C17")
def topic_got_a_queue_behind_the_rounds(run: SyntheticRun) -> None:
    _third_queue(run, run.find("assignment", ref=f"{run.name}.three", process=_last_asker(run)))


def test_queue_that_was_there_before_the_round_is_missed(tmp_path: Path) -> None:
    run = consumer_run("a")
    _third_queue(run, run.find("send", "v0"))
    (found,) = results("C17", run, tmp_path)
    assert {witness["problem"] for witness in found.witnesses} == {"assigned to too few"}


def _last_asker(run: SyntheticRun) -> str:
    return f"{run.name}.asker-three-2"


def _third_queue(run: SyntheticRun, behind: Row) -> None:
    """The topic got a third queue, to which nothing was sent, behind that operation."""
    queue = next(q for q in run.manifest["queues"] if q["topic"] == TOPIC)
    run.manifest["queues"].append(queue | {"queue": 2, "min_offset": 0, "max_offset": 0})
    owned = [{"broker_group": run.group, "topic": TOPIC, "queue": queue} for queue in range(3)]
    add(run, behind, f="create_topic", process="admin", status="6", assigned=owned, ref=None)


@silent("A4")
def only_a_group_with_tags_read_it(run: SyntheticRun) -> None:
    """It passes over what it does not want, and nobody else was there."""
    drop(run, *_read_of_tagged(run))


def test_what_others_pass_over_beside_a_group_with_tags_is_lost(tmp_path: Path) -> None:
    run = consumer_run("a")
    for op in _read_of_tagged(run):
        op["messages"] = [m for m in op["messages"] if m["value"] != f"{run.name}.t1"]
    (found,) = results("A4", run, tmp_path)
    assert [witness["value"] for witness in found.witnesses] == [f"{run.name}.t1"]


def _read_of_tagged(run: SyntheticRun) -> list[Row]:
    return [
        op
        for op in run.ops
        if op.get("topic") == TAGGED
        and op["f"] in {"poll", "deliver"}
        and op["client_group"] != "filters"
    ]


@silent("C3")
def call_outlives_its_lock(run: SyntheticRun) -> None:
    """It began six seconds before the other member's."""
    last, first = of_group(run, "orderly", "o2")[-1], of_group(run, "orderly", "o3")[0]
    last |= {
        "t_invoke": first["t_invoke"] - 6_000 * MS,
        "t_complete": first["t_invoke"] + 1_000 * MS,
    }


@silent("C3")
def call_whose_end_nobody_recorded(run: SyntheticRun) -> None:
    last = of_group(run, "orderly", "o2")[-1]
    last |= {"type": "info", "t_complete": None}


@silent("C3")
def two_members_of_another_group_at_once(run: SyntheticRun) -> None:
    one, other = of_group(run, "broadcast", "b1")
    one["t_complete"] = other["t_complete"]


@silent("C12")
def lock_whose_owner_was_giving_it_back(run: SyntheticRun) -> None:
    """Nobody answered it, and it took effect."""
    (given,) = ops_of(run, "m1", "unlock")
    given |= {"type": "info", "t_complete": None}


@silent("C12")
def lock_of_a_dead_member(run: SyntheticRun) -> None:
    drop(run, *ops_of(run, "m1", "unlock"))
    theirs = ops_of(run, "m2")[-1]
    theirs["t_complete"] = ops_of(run, "m1")[-1]["t_invoke"] + 30_000 * MS


@silent("C12")
def lock_of_a_dead_member_whose_lease_was_short(run: SyntheticRun) -> None:
    lock_of_a_dead_member(run)
    run.manifest["consumer_groups"]["orderly"]["lease_ms"] = 12_000
    theirs = ops_of(run, "m2")[-1]
    theirs["t_complete"] = ops_of(run, "m1")[-1]["t_invoke"] + 6_000 * MS


@silent("C12")
def lock_refused_while_it_may_not_be_free(run: SyntheticRun) -> None:
    """Whether its owner has given it back, nobody knows."""
    withheld(run)
    (given,) = ops_of(run, "m1", "unlock")
    given["type"] = "info"


@silent("C12")
def lock_refused_while_a_third_member_may_have_it(run: SyntheticRun) -> None:
    ours = ops_of(run, "m2")[-1]
    withheld(run)
    add(run, ours, client=f"{run.name}.m3", type="info", t_complete=None)


@silent("C12")
def lock_was_renewed_while_it_was_given_back(run: SyntheticRun) -> None:
    """The renewal may have come behind the unlock, and holds then."""
    withheld(run)
    (given,) = ops_of(run, "m1", "unlock")
    ops_of(run, "m1")[-1]["t_complete"] = given["t_invoke"] + 1


@silent("C12")
def lock_refused_once(run: SyntheticRun) -> None:
    refused_later(run, ops_of(run, "m2")[-1], 8_000)
    drop(run, ops_of(run, "m2")[1])


@silent("C12")
def lock_refused_in_a_fault(run: SyntheticRun) -> None:
    withheld(run)
    last = ops_of(run, "m2")[-1]
    fault = run.faults[0] | {"fault": 2, "t_start": last["t_invoke"] - 2_000 * MS}
    fault |= {"t_effect": last["t_invoke"] - 2_000 * MS, "t_healed": last["t_complete"] + 1}
    run.faults.append(fault)


@silent("C12")
def queue_that_a_member_locks_twice(run: SyntheticRun) -> None:
    add(run, ops_of(run, "m1")[-1], 1)


@silent("C14")
def broadcast_member_died_soon(run: SyntheticRun) -> None:
    """It was last heard of less than three seconds after it had consumed the message."""
    died_and_back(run, after_ms=2_900)
    given_again(run, "b4")


@silent("C14")
def broadcast_member_left_with_one_refused(run: SyntheticRun) -> None:
    """Its progress stands before that one, and so before what it consumed behind it."""
    of_group(run, "broadcast", "b1")[1]["type"] = "fail"
    left_and_back(run)
    for name in ("b1", "b2"):
        given_again(run, name)


@silent("C14")
def broadcast_member_begins_anew(run: SyntheticRun) -> None:
    """Under another name it is another member, and is given all again."""
    left_and_back(run)
    for number in range(5):
        given_again(run, f"b{number}")["client"] = f"{run.name}.b3"


@silent("C14")
def broadcast_member_whose_storing_nobody_knows(run: SyntheticRun) -> None:
    del run.manifest["consumer_groups"]["broadcast"]["progress_ms"]
    died_and_back(run, after_ms=6_000)
    given_again(run, "b0")


@silent("C13")
def retried_message_of_a_filter(run: SyntheticRun) -> None:
    of_group(run, "filters", "t2")[0]["type"] = "fail"


@silent("C13")
def not_wanted_and_unread(run: SyntheticRun) -> None:
    drop(run, *of_group(run, "filters", "t1"))


@silent("C15")
def held_poll_is_woken_at_the_last_moment(run: SyntheticRun) -> None:
    """The message had come less than wake_ms before its time was up."""
    held = longpolls_of(run)[1]
    held |= {"due": held["t_complete"] - 1, "t_complete": held["t_complete"] + 990 * MS}


@silent("C15")
def held_poll_in_a_fault(run: SyntheticRun) -> None:
    held = longpolls_of(run)[1]
    held["t_complete"] = held["due"]
    fault = run.faults[0] | {"fault": 2, "t_start": held["t_invoke"] + MS}
    fault |= {"t_effect": held["t_invoke"] + MS, "t_healed": held["t_invoke"] + 2 * MS}
    run.faults.append(fault)


@silent("S5")
def offset_that_rode_on_a_poll(run: SyntheticRun) -> None:
    """Nobody answered whether it was stored, and it was."""
    like = next(op for op in run.ops if op["f"] == "fetch_offset")
    last = longpolls_of(run)[-1]
    at = {"t_invoke": last["t_complete"] + 1, "t_complete": last["t_complete"] + MS}
    place = {name: last[name] for name in ("client", "client_group", "topic", "queue")}
    number = max(op["op"] for op in run.ops) + 1
    run.ops.append(like | place | at | {"op": number, "process": "h9", "offset": 2})


@silent("C4")
def refused_batch_comes_again_one_by_one(run: SyntheticRun) -> None:
    refused = of_group(run, "orderly", "o2")[0]
    refused["messages"] = [*refused["messages"], *of_group(run, "orderly", "o3")[0]["messages"]]


@silent("C4")
def consumed_again_after_a_crash(run: SyntheticRun) -> None:
    add(run, of_group(run, "orderly", "o1")[0], 30_000)


@pytest.mark.parametrize(("reconsume", "told"), [(15, True), (16, False)])
def test_what_was_given_up_may_come_again(tmp_path: Path, reconsume: int, told: bool) -> None:
    """The commit behind it was lost; a message that is still to be retried holds the queue."""
    run = consumer_run("a")
    orderly = run.manifest["consumer_groups"]["orderly"]
    run.manifest["consumer_groups"]["orderly"] = orderly | {"retries_max": 16}
    refused, again = of_group(run, "orderly", "o2")
    refused["messages"][0]["reconsume"] = reconsume
    add(run, again, 30_000)
    drop(run, again)
    assert (results("C4", run, tmp_path)[0].violations > 0) == told


@silent("C5")
def member_left_before_the_last(run: SyntheticRun) -> None:
    """Its assign without queues came before the drain's end."""
    drop(run, of_group(run, "broadcast", "b4")[0])
    (left,) = (
        op for op in run.ops if op["client"] == f"{run.name}.b1" and op.get("assigned") == []
    )
    left |= {"t_invoke": DRAINED_AT - 2, "t_complete": DRAINED_AT - 1}


@silent("C5")
def member_joined_behind_the_first(run: SyntheticRun) -> None:
    drop(run, of_group(run, "broadcast", "b0")[0])


@silent("C5")
def member_refused_one(run: SyntheticRun) -> None:
    of_group(run, "broadcast", "b2")[0]["type"] = "fail"


@silent("C5")
def missed_message_was_not_acknowledged(run: SyntheticRun) -> None:
    drop(run, of_group(run, "broadcast", "b2")[0])
    run.find("send", "b2")["type"] = "info"


@silent("C5")
def member_got_nothing_of_what_was_sent_as_it_came(run: SyntheticRun) -> None:
    drop(run, *(of_group(run, "broadcast", f"b{number}")[0] for number in range(5)))


@silent("C6")
def withheld_in_a_queue_that_was_not_drained(run: SyntheticRun) -> None:
    drop(run, *of_group(run, "retries", "r0"))
    for queue in run.manifest["queues"]:
        if queue["topic"] == RETRIED:
            queue["drained"] = False


@silent("C7", "r2", "r2")
def dead_letter_twice_after_two_refusals(run: SyntheticRun) -> None:
    add(run, of_group(run, "retries", "r2")[-1])


@silent("C7", "r2", "r2")
def dead_letter_twice_within_a_fault(run: SyntheticRun) -> None:
    _last_refusal_in_a_fault(run)


@silent("C8")
def member_tries_again_by_itself_within_a_fault(run: SyntheticRun) -> None:
    _last_refusal_in_a_fault(run)
    add(run, of_group(run, "retries", "r2")[-1])["messages"][0]["reconsume"] = 3


@silent("C8")
def same_count_comes_twice(run: SyntheticRun) -> None:
    """It was sent back by the broker's own count, which knows of no retry within the member."""
    add(run, of_group(run, "retries", "r2")[1])


@silent("C8")
def two_copies_of_a_refusal_whose_answer_was_lost(run: SyntheticRun) -> None:
    """Both came soon behind the fault in which it was sent back twice."""
    for op in of_group(run, "retries", "r2")[1:]:
        op["messages"][0]["reconsume"] = 1


@silent("C8")
def member_died_with_what_it_was_given(run: SyntheticRun) -> None:
    """Its successor is given the same place again, with the same count."""
    come_again_late(run, "r1")
    again = of_group(run, "retries", "r1")[-1]
    add(run, again, after_ms=2_000, process=f"{run.name}.r2.listener", client=f"{run.name}.r2")
    again |= {"type": "info", "t_complete": None}


@silent("C18")
def nobody_says_of_which_topic_it_is(run: SyntheticRun) -> None:
    of_group(run, "retries", "r1")[-1]["messages"][0]["origin"] = None


@silent("C18")
def what_nobody_sent_is_of_no_topic(run: SyntheticRun) -> None:
    """A11 says so."""
    shown = of_group(run, "retries", "r1")[-1]["messages"][0]
    shown |= {"value": "a.nobody's", "origin": "Another"}


@silent("C19")
def what_was_refused_is_another_topics_by_now(run: SyntheticRun) -> None:
    commit_before(run, "r1", 2, of_group(run, "retries", "r2")[0])


@silent("C19")
def group_was_reset_past_what_it_was_given(run: SyntheticRun) -> None:
    commit = ops_of(run, "r1", "commit_offset")[0]
    add(run, commit, f="reset", client="a.tool", process="a.tool", offset=9, type="info")
    add(run, commit, 2_000, type="fail", offset=9, process="a.late")


@silent("C10")
def member_tries_again_by_itself_without_a_delay(run: SyntheticRun) -> None:
    """Sending it back had failed: it is delivered at the same place, and counts one more."""
    first = of_group(run, "retries", "r1")[0]
    add(run, first, after_ms=1, type="fail")["messages"][0]["reconsume"] = 1


@silent("C10")
def a_tenth_of_the_delay_is_the_clocks(run: SyntheticRun) -> None:
    refused, retried = of_group(run, "retries", "r1")
    retried["t_invoke"] = refused["t_complete"] + 2 * MS - MS // 10


@silent("C9")
def reset_again_before_it_was_followed(run: SyntheticRun) -> None:
    drop(run, *of_group(run, "resets", "s5")[1:])
    again = reset(run, "tool", 6)
    again["op"] = len(run.ops) + 1_000


@silent("C9")
def reset_whose_answer_never_came(run: SyntheticRun) -> None:
    drop(run, *of_group(run, "resets", "s5")[1:])
    _reset(run).update({"type": "info", "t_complete": None, "offset": None})


@silent("C9")
def commit_of_unknown_outcome_may_have_undone_it(run: SyntheticRun) -> None:
    drop(run, *of_group(run, "resets", "s5")[1:])
    place = {"client_group": "resets", "topic": "Reset", "queue": 0}
    run.op("s1.commits", "commit_offset", "info", offset=6, **place)
    run.ops[-1] |= {"op": len(run.ops) + 1_000, "t_complete": None}


@silent("C9")
def what_was_held_is_delivered_before_the_reset_is_heard_of(run: SyntheticRun) -> None:
    _reset(run)["offset"] = 5


@pytest.mark.parametrize("is_new", [False, True])
def test_a_member_that_kept_its_queue_goes_on_behind_another(tmp_path: Path, is_new: bool) -> None:
    """The other one followed the reset; one that is assigned anew asks where to go on."""
    run = consumer_run("a")
    followed = of_group(run, "resets", "s2")[1]
    followed["client"] = f"{run.name}.s9"
    if is_new:
        assign(run, "s1", "resets", RESET)
        run.ops[-1] |= dict.fromkeys(("t_invoke", "t_complete"), followed["t_complete"])
        run.ops[-1]["op"] = len(run.ops) + 1_000
    drop(run, of_group(run, "resets", "s3")[1])
    # That member's own reset behind it, to s4, would excuse what stands before.
    drop(run, *ops_of(run, "s1", "reset"))
    assert (results("C9", run, tmp_path)[0].violations > 0) == is_new


@silent("A12")
def member_hears_of_a_reset_behind_a_delivery(run: SyntheticRun) -> None:
    """What it had pulled before is delivered after the answer to the reset, and then again."""
    _reset_ends_before_the_delivery_of_s5(run, by_ns=1)


@silent("C9")
def queue_was_given_anew_after_a_seek(run: SyntheticRun) -> None:
    drop(run, of_group(run, "resets", "s4")[-1])
    seek = next(op for op in run.ops if op["f"] == "reset" and op["client"] == f"{run.name}.s1")
    assign(run, "s1", "resets", "Reset")
    run.ops[-1]["op"] = seek["op"]
    seek["op"] -= 0.5
    _renumber(run)


@silent("M8")
def commit_of_unknown_outcome_may_have_moved_the_group(run: SyntheticRun) -> None:
    """Not forced, it went to where that commit may have brought the group."""
    reset_by_time(run, 0, 0)
    place = {"client_group": TIMED, "topic": RESET, "queue": 0}
    run.op("t1.commits", "commit_offset", "info", offset=4, **place)
    run.ops[-1] |= {"op": len(run.ops) + 1_000, "t_complete": None}
    reset_by_time(run, 4, stored_at(run, 5), "no-force")


@silent("M8")
def reset_of_unknown_place_came_before(run: SyntheticRun) -> None:
    reset_by_time(run, 0, 0)
    reset_by_time(run, None, stored_at(run, 5), outcome="info")
    reset_by_time(run, 5, stored_at(run, 5), "no-force")


@silent("M8")
def commit_counts_for_nothing_before_the_reset_is_followed(run: SyntheticRun) -> None:
    """The commit was acknowledged, and the group stays where the reset before it had led."""
    reset_by_time(run, 3, stored_at(run, 3))
    place = {"client_group": TIMED, "topic": RESET, "queue": 0}
    run.op("t1.commits", "commit_offset", offset=1, **place)
    run.ops[-1]["op"] = len(run.ops) + 1_000
    reset_by_time(run, 3, -1, "no-force")


@silent("M8")
def nobody_knows_of_the_message_yet(run: SyntheticRun) -> None:
    """At the end there was nothing when it was asked; what stands there now is older."""
    sent = next(op for op in run.ops if op["f"] == "send" and op["topic"] == RESET)
    row = reset_by_time(run, 0, stored_at(run, 5) + 1_000)
    row |= {"t_invoke": sent["t_invoke"] - 2, "t_complete": sent["t_invoke"] - 1}


@silent("M8")
def group_of_which_nothing_is_known_goes_anywhere(run: SyntheticRun) -> None:
    row = reset_by_time(run, 4, stored_at(run, 4), "no-force")
    row["client_group"] = "nobody"


@pytest.mark.parametrize(
    ("rule_id", "change", "dead"), SILENT, ids=[f"{r}-{c.__name__}" for r, c, _ in SILENT]
)
def test_what_is_legal_accuses_nobody(
    rule_id: str, change: Change, dead: tuple[str, ...], tmp_path: Path
) -> None:
    (only,) = results(rule_id, consumer_run("a", change, dead=dead), tmp_path)
    assert only.verdict is Outcome.PASS, (only.reason, only.witnesses)


def test_a_retry_may_have_been_to_come(tmp_path: Path) -> None:
    run = consumer_run("a", dead=())
    run.manifest["phases"]["drain"][1] = of_group(run, "retries", "r2")[-1]["t_complete"] + 1
    (only,) = results("C6", run, tmp_path)
    assert only.verdict is Outcome.UNKNOWN
    assert "still to come" in str(only.reason)


def test_without_a_log_and_a_read_dead_letters_are_unknown(tmp_path: Path) -> None:
    run = consumer_run("a")
    run.manifest["system"] = "another"
    run.log = run.cq = run.raft = []
    (only,) = results("C6", run, tmp_path)
    assert only.verdict is Outcome.UNKNOWN
    assert "dead letters" in str(only.reason)


@pytest.mark.parametrize(
    "rule_id",
    ["C3", "C4", "C5", "C6", "C7", "C8", "C9", "C10", "C12", "C13", "C14", "C15", "M8"],
)
def test_it_is_left_out_where_no_group_has_the_feature(rule_id: str, tmp_path: Path) -> None:
    run = SyntheticRun("a")
    for name in (
        "orderly",
        "broadcast",
        "drain",
        "retries",
        "resets",
        "popper",
        "filters",
        "longpolls",
    ):
        del run.manifest["consumer_groups"][name]
    assert results(rule_id, run, tmp_path) == []


def test_an_exclusive_group_consumes_what_was_refused_before_it_commits(tmp_path: Path) -> None:
    run = consumer_run("a")
    run.manifest["consumer_groups"]["orderly"] |= {"at_least_once": True}
    assert [each.verdict for each in results("C19", run, tmp_path / "clean")] == [Outcome.PASS]
    commit_before(run, "m1", 3, of_group(run, "orderly", "o2")[-1])
    (only,) = results("C19", run, tmp_path / "planted")
    assert [witness["offset"] for witness in only.witnesses] == [3]


def test_origins_that_nobody_told_are_not_judged(tmp_path: Path) -> None:
    run = consumer_run("a")
    for op in run.ops:
        for message in op.get("messages") or ():
            message["origin"] = None
    assert results("C18", run, tmp_path) == []


def test_a_reset_long_before_both_reads_is_no_cause(tmp_path: Path) -> None:
    run = consumer_run("a", lambda run: _reset_ends_before_the_delivery_of_s5(run, 10_000_000_001))
    (only,) = results("A12", run, tmp_path)
    assert only.verdict is Outcome.FAIL
    assert [witness["value"] for witness in only.witnesses] == ["a.s5"]


def _reset_ends_before_the_delivery_of_s5(run: SyntheticRun, by_ns: int) -> None:
    told, first = _reset(run), of_group(run, "resets", "s5")[0]
    told["t_complete"] = first["t_invoke"] - by_ns
    told["t_invoke"] = told["t_complete"] - 1


def _last_refusal_in_a_fault(run: SyntheticRun) -> None:
    refused = of_group(run, "retries", "r2")[-1]
    fault = run.faults[0] | {"fault": 2, "t_start": refused["t_invoke"] - 1}
    fault |= {"t_effect": refused["t_invoke"], "t_healed": refused["t_complete"] + 1}
    run.faults.append(fault)


def _reset(run: SyntheticRun) -> Row:
    return next(op for op in run.ops if op["f"] == "reset" and op["client"].endswith("tool"))


def _renumber(run: SyntheticRun) -> None:
    for number, op in enumerate(sorted(run.ops, key=lambda op: float(op["op"]))):
        op["op"] = number
