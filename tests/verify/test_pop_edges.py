"""Where the rules of POP must stay silent, or are left out: the edges that no plant shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.verify.clean_runs import retain_from
from tests.verify.pop_plants import retain_behind_x
from tests.verify.pop_runs import Pops, Script, popped_run
from tests.verify.synthetic import MS, NODES, Rec, Row, SyntheticRun, merge
from verify.catalogue.rule_files import (
    BUILT_IN_RULES,
    BUILT_IN_STAGES,
    Rule,
    read_rules,
    read_stages,
)
from verify.engines.duckdb import DuckDBEngine
from verify.judge import Judged, judge_run
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles
from verify.verdict import CheckResult, Outcome

RULES = [rule for rule in read_rules(BUILT_IN_RULES) if rule.id.startswith("P")]
SILENT: list[tuple[str, Script]] = []


def judged(run: SyntheticRun, folder: Path, *ids: str) -> Judged:
    """The rules of POP (or those of `ids`) on the run."""
    path = run.write(folder)
    return judge_run(
        DuckDBEngine(folder),
        LocalFiles(path),
        load_manifest(LocalFiles(path)),
        rules=[rule for rule in RULES if not ids or rule.id in ids],
        stages=read_stages(BUILT_IN_STAGES),
        report=lambda text: None,
    )


def _retained(folder: Path, script: Script) -> CheckResult:
    run = popped_run("taken", script)
    retain_behind_x(run)
    (found,) = judged(run, folder, "P10").results
    return found


def test_what_is_acknowledged_or_came_again_may_be_deleted(tmp_path: Path) -> None:
    def acknowledged(pops: Pops) -> None:
        pops.send("x", "y")
        pops.consume("a1", "x", "y")
        pops.consume("b1", "x", "y", in_order=True)

    def came_again(pops: Pops) -> None:
        pops.send("x", "y")
        pops.pop("a1", "x")
        pops.wait()
        pops.come_again("x", 1)

    def held(pops: Pops) -> None:
        pops.send("x", "y")
        pops.pop("a1", "x")

    assert _retained(tmp_path / "acked", acknowledged).verdict is Outcome.PASS
    assert _retained(tmp_path / "again", came_again).verdict is Outcome.PASS
    assert _retained(tmp_path / "held", held).verdict is Outcome.FAIL


def test_what_came_before_the_beginning_of_the_log_is_in_no_order(tmp_path: Path) -> None:
    """Its acknowledgement went with the log's beginning: another one of the message is not it."""

    def script(pops: Pops) -> None:
        pops.send("x")
        popped = pops.pop("a1", "x")
        pops.ack(popped, "x")
        pops.send("y")
        pops.consume("a2", "y")
        pops.ack(popped, "x")  # by a client that did not hear of the first one

    run = popped_run("early", script)
    (sent,) = {row["index"] for row in run.logged("y", "message") if row["node"] == "n0"}
    for node in NODES:
        retain_from(run, node, sent)
    (found,) = judged(run, tmp_path, "P8").results
    assert found.verdict is Outcome.PASS, found.witnesses


def silent(rule_id: str) -> Callable[[Script], Script]:
    """Register what that rule must not accuse; no other rule of POP may, either."""

    def register(script: Script) -> Script:
        SILENT.append((rule_id, script))
        return script

    return register


@silent("P1")
def a_change_without_an_answer_may_have_made_it_visible(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x", ms=400)
    pops.change(popped, "x", 20, outcome="info")
    pops.wait(40)
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@silent("P1")
def a_change_made_it_visible_sooner(pops: Pops) -> None:
    pops.send("x")
    pops.change(pops.pop("a1", "x", ms=400), "x", 20)
    pops.wait(40)
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@silent("P1")
def a_pop_that_was_held_came_after_one_that_was_asked_for_later(pops: Pops) -> None:
    """In order, where nothing is counted: only the times tell."""
    pops.send("x")
    pops.consume("a1", "x")
    held = pops.pop("b1", "x", in_order=True)
    pops.wait()
    last = pops.pop("b2", "x", in_order=True)
    pops.ack(last, "x")
    last["t_invoke"] = held["t_invoke"] - 100 * MS
    last["due"] = last["t_invoke"] + 200 * MS


@silent("P1")
def a_tenth_of_the_time_is_the_clocks(pops: Pops) -> None:
    pops.send("x")
    pops.pop("a1", "x")
    pops.wait(182)
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@silent("P2")
def an_acknowledgement_that_came_late_did_not_count(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    pops.wait(180)
    pops.ack(popped, "x")
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@silent("P2")
def an_acknowledgement_without_an_answer_may_not_have_counted(pops: Pops) -> None:
    pops.send("x")
    pops.ack(pops.pop("a1", "x"), "x", outcome="info")
    pops.wait()
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@silent("P2")
def an_acknowledgement_by_a_receipt_that_was_replaced(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    pops.change(popped, "x", 100)
    pops.ack(popped, "x")
    pops.wait(150)
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@silent("P2")
def an_acknowledgement_by_a_receipt_that_may_have_been_replaced(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    pops.change(popped, "x", 100, outcome="info")
    pops.ack(popped, "x")
    pops.wait()
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@silent("P2")
def in_order_it_comes_with_the_one_ahead(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    pops.ack(pops.pop("b1", "x", "y", in_order=True), "y")
    pops.wait()
    pops.consume("b2", "x", "y", in_order=True)


@silent("P3")
def an_acknowledgement_without_an_answer_may_have_counted(pops: Pops) -> None:
    pops.send("x")
    pops.ack(pops.pop("a1", "x"), "x", outcome="info")
    pops.consume("b1", "x", in_order=True)


@silent("P3")
def a_dead_letter_is_not_lost(pops: Pops) -> None:
    pops.send("x")
    for reconsume in range(1, 3):
        pops.pop("a1", "x")
        pops.wait()
        pops.come_again("x", reconsume)
    pops.pop("a1", "x")
    pops.wait()
    pops.die("x")
    pops.consume("b1", "x", in_order=True)


@silent("P3")
def a_pop_without_an_answer_may_still_hide_it(pops: Pops) -> None:
    pops.send("x")
    pops.pop("a1", ms=3_000, outcome="info")
    pops.consume("b1", "x", in_order=True)


@silent("P3")
def a_change_without_an_answer_may_still_hide_it(pops: Pops) -> None:
    pops.send("x")
    pops.change(pops.pop("a1", "x"), "x", 3_000, outcome="info")
    pops.consume("b1", "x", in_order=True)


@silent("P3")
def in_order_the_one_ahead_may_still_block_it(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    popped = pops.pop("b1", "x", in_order=True)
    pops.ack(pops.change(popped, "x", 3_000), "x", outcome="info")


@silent("P4")
def the_one_ahead_may_be_acknowledged(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    pops.ack(pops.pop("b1", "x", in_order=True), "x", outcome="info")
    pops.consume("b2", "y", in_order=True)


@silent("P4")
def the_one_ahead_was_acknowledged_while_the_pop_was_held(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    first = pops.pop("b1", "x", in_order=True)
    acked = pops.ack(first, "x")
    later = pops.pop("b2", "y", in_order=True)
    pops.ack(later, "y")
    later["t_invoke"] = acked["t_invoke"] - 1
    later["due"] -= 10 * MS


@silent("P5")
def a_pop_without_an_answer_counts(pops: Pops) -> None:
    pops.send("x")
    pops.pop("a1", outcome="info")
    pops.wait()
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@silent("P4")
def a_replaced_receipt_frees_nothing(pops: Pops) -> None:
    pops.send("x", "y")
    pops.consume("a1", "x", "y")
    first = pops.pop("b1", "x", in_order=True)
    pops.wait()
    second = pops.pop("b2", "x", in_order=True)
    pops.ack(first, "x")
    pops.ack(second, "x")
    pops.consume("b3", "y", in_order=True)


@silent("P8")
def an_acknowledgement_that_came_late_is_in_no_log(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    pops.wait()
    _drop_entry(pops, pops.ack(popped, "x"))
    pops.come_again("x", 1)
    pops.consume("a2", "x")
    pops.consume("b1", "x", in_order=True)


@silent("P8")
def what_is_acknowledged_already_needs_no_entry(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    pops.ack(popped, "x", outcome="info")
    _drop_entry(pops, pops.ack(popped, "x"))
    pops.consume("b1", "x", in_order=True)


@silent("P8")
def a_receipt_that_was_replaced_is_in_no_log(pops: Pops) -> None:
    pops.send("x")
    popped = pops.pop("a1", "x")
    changed = pops.change(popped, "x", 300)
    _drop_entry(pops, pops.ack(popped, "x"))
    pops.ack(changed, "x")
    pops.consume("b1", "x", in_order=True)


@silent("P9")
def a_held_pop_waits_on_where_another_was_faster(pops: Pops) -> None:
    asked = pops.run.tick()
    pops.send("x")
    pops.consume("a2", "x")
    pops.wait(30)
    pops.consume("b1", "x", in_order=True)
    pops.wait(100)
    held = pops.pop("a1")
    held |= {"t_invoke": asked, "due": asked + 200 * MS}


@silent("P9")
def it_was_slow_for_all(pops: Pops) -> None:
    pops.hold_pop("x", others_after_ms=80)


@silent("P9")
def a_fault_was_under_way(pops: Pops) -> None:
    began = pops.run.tick()
    pops.run.tick(6)
    pops.hold_pop("x")
    pops.run.faults.append(
        pops.run.faults[0]
        | {
            "fault": 2,
            "t_start": began,
            "t_effect": began + 1,
            "t_heal": pops.run.now,
            "t_healed": pops.run.now,
        }
    )


def _drop_entry(pops: Pops, row: Row) -> None:
    """Take the last operation's rows out of the log: its command had nothing to say."""
    pops.run.entries[-1].recs = [Rec("command")]
    assert pops.run.ops[-1] is row


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckResult]:
    """All of them side by side, judged once."""
    whole = merge([popped_run(script.__name__, script) for _, script in SILENT])
    found = judged(whole, tmp_path_factory.mktemp("edges"))
    return {result.id: result for result in found.results}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_stays_silent(rule: Rule, edges: dict[str, CheckResult]) -> None:
    found = edges[rule.id]
    assert found.verdict is Outcome.PASS, (found.reason, found.witnesses)
    assert found.examined > 0


def test_a_run_without_pops_is_not_judged(tmp_path: Path) -> None:
    found = judged(SyntheticRun("a"), tmp_path)
    assert not found.results
    assert len(found.left_out) == len(RULES)


def test_without_a_pop_that_found_nothing_nothing_is_lost(tmp_path: Path) -> None:
    """Nobody tried after the heal: the message may have been there for whoever asked."""

    def left(pops: Pops) -> None:
        pops.send("x")
        pops.pop("a1", "x")
        pops.consume("b1", "x", in_order=True)

    run = popped_run("a", left)
    (told,) = judged(run, tmp_path / "lost", "P3").results
    assert told.verdict is Outcome.FAIL
    run.ops = run.ops[:-2]
    (told,) = judged(run, tmp_path / "open", "P3").results
    assert told.verdict is Outcome.PASS


def test_clocks_may_differ(tmp_path: Path) -> None:
    def early(pops: Pops) -> None:
        pops.send("x")
        pops.pop("a1", "x")
        pops.wait(150)
        pops.come_again("x", 1)
        pops.consume("a2", "x")
        pops.consume("b1", "x", in_order=True)

    run = popped_run("a", early)
    (told,) = judged(run, tmp_path / "one", "P1").results
    assert told.verdict is Outcome.FAIL
    run.manifest["clock_error_ns"] = 50 * MS
    (told,) = judged(run, tmp_path / "two", "P1").results
    assert told.verdict is Outcome.PASS
