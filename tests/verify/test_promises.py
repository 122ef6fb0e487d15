"""What a mode promises under what has happened: the table, what is read from a run, the verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from chaos.nemesis.catalogue import CATALOGUE
from tests.verify.master_slave_runs import FAULT, lose, master_slave_run, strike, take_over
from tests.verify.synthetic import SyntheticRun
from verify.catalogue.rule_files import BUILT_IN_RULES, BUILT_IN_STAGES, read_rules, read_stages
from verify.engine_promises import (
    ALL,
    ALWAYS,
    FAULTS,
    LEFT_OUT,
    MODES,
    WITHHELD,
    Hazard,
    Loss,
    mode_named,
    withheld_by,
)
from verify.promise_page import promise_page
from verify.promised import Given, promises_given
from verify.run import Rules, _summary, verify_run
from verify.verdict import CheckResult, Outcome, Verdict

RULES = {rule.id: rule for rule in read_rules(BUILT_IN_RULES)}
PAGE = Path(__file__).parents[2] / "docs" / "PROMISES.md"

# --- the table ---------------------------------------------------------------------------------


def test_the_page_is_the_tables() -> None:
    """Made anew by `python -m verify.promise_page > docs/PROMISES.md`."""
    assert PAGE.read_text(encoding="utf-8") == promise_page()


def test_each_check_stands_under_its_promise() -> None:
    for loss, withheld in WITHHELD.items():
        for promise, checks in withheld.items():
            named = () if checks == ALL else checks
            assert {RULES[check].promise for check in named} <= {promise}, (loss, promise)


def test_every_fault_of_the_laboratory_is_classified() -> None:
    assert set(CATALOGUE) <= set(FAULTS)


def test_rules_that_are_left_out_are_rules() -> None:
    assert set(LEFT_OUT) <= set(RULES)
    assert set(RULES) >= ALWAYS
    for rule in RULES.values():
        assert set(rule.engines) <= {"async", "sync"}


def test_each_mode_says_something_of_each_hazard() -> None:
    assert {(mode.engine, mode.flush) for mode in MODES} == {
        (engine, flush) for engine in ("async", "sync") for flush in ("async", "sync")
    }
    for mode in MODES:
        assert set(mode.losses) == set(Hazard)


def test_a_worse_mode_gives_no_more() -> None:
    """sync/sync withholds least, async/async most, check by check."""

    def withheld(engine: str, flush: str, hazard: Hazard) -> set[str]:
        mode = mode_named(engine, flush)
        assert mode is not None
        loss = mode.losses[hazard]
        return {rule.id for rule in RULES.values() if withheld_by(loss, rule.id, rule.promise)}

    for hazard in Hazard:
        for other in (("sync", "async"), ("async", "sync")):
            least, most = ("sync", "sync"), ("async", "async")
            assert withheld(*least, hazard) <= withheld(*other, hazard), hazard
            assert withheld(*other, hazard) <= withheld(*most, hazard), hazard


def test_what_always_holds_is_excused_by_name_alone() -> None:
    for check in ALWAYS:
        promise = RULES[check].promise
        assert not withheld_by(Loss.ACKNOWLEDGED, check, promise), check


def test_no_mode_excuses_that_failures_are_no_failures() -> None:
    for mode in MODES:
        for loss in mode.losses.values():
            for check in ("A3", "A11", "A19", "S7", "M7"):
                assert not withheld_by(loss, check, RULES[check].promise)


# --- what has happened -------------------------------------------------------------------------

AT = 1_000


def struck(name: str, node: str = "n0", *, was_master: bool | None = True, t: int = AT) -> dict:
    return {
        "fault": 1, "name": name, "effect": "taken", "t_start": t, "broker_group": "a",
        "node": node, "was_master": was_master,
    }  # fmt: skip


def said(node: str, t: int) -> dict:
    return {"broker_group": "a", "node": node, "t": t, "seq": 1}


def over(node: str, t: int, *, index: int | None = 9, others: int | None = None) -> dict:
    return {
        "broker_group": "a", "node": node, "t": t, "node_before": "n0", "index": index,
        "others_index": others,
    }  # fmt: skip


def given(
    *rows: dict,
    mode: tuple[str, str] = ("sync", "sync"),
    masters: tuple[dict, ...] = (said("n0", 0),),
    takeovers: tuple[dict, ...] = (),
    effect: str = "taken",
    nodes: int = 2,
) -> Given:
    named = mode_named(*mode)
    assert named is not None
    return promises_given(
        named,
        effects=[{"name": row["name"], "effect": effect, "faults": 1} for row in rows],
        struck=rows,
        masters=masters,
        takeovers=takeovers,
        lost=0,
        in_sync_replicas=nodes,
    )


def hazards(found: Given) -> set[Hazard]:
    return set(found.by_hazard)


H = Hazard


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (given(), set()),
        (given(struck("kill")), {H.AWAY}),
        (given(struck("kill"), effect="not_taken"), set()),
        (given(struck("kill"), effect="unknown"), {H.AWAY}),
        (given(struck("cut-clients")), set()),
        (given(struck("from-a-newer-laboratory")), set()),
        (given(struck("power-failure")), {H.AWAY, H.POWER}),
        (given(struck("power-failure", "n1", was_master=False)), {H.AWAY}),
        (given(struck("power-failure", was_master=None)), {H.AWAY, H.POWER}),
        (given(struck("fsync-lies")), {H.AWAY}),
        (
            given(struck("fsync-lies"), struck("power-failure", "n1", was_master=False)),
            {H.AWAY},
        ),
        (given(struck("fsync-lies"), struck("power-failure")), {H.AWAY, H.POWER, H.LIES}),
        (given(struck("bit-rot", "n1", was_master=False)), {H.AWAY, H.DAMAGE}),
        (given(struck("wiped-store", "n1", was_master=False)), {H.AWAY}),
        (given(struck("wiped-store")), {H.AWAY, H.EMPTIED}),
        (
            given(struck("wiped-store"), masters=(said("n0", 0), said("n0", AT + 1))),
            {H.AWAY, H.EMPTIED},
        ),
        (
            given(
                struck("wiped-store"),
                masters=(said("n0", 0), said("n1", AT + 1)),
                takeovers=(over("n1", AT + 1),),
            ),
            {H.AWAY, H.TAKEOVER},
        ),
        (
            given(
                struck("wiped-store"),
                masters=(said("n0", 0), said("n1", AT + 1)),
                takeovers=(over("n1", AT + 1, others=10),),
            ),
            {H.AWAY, H.TAKEOVER, H.TAKEOVER_BEHIND},
        ),
        (
            given(
                struck("wiped-store"),
                struck("power-failure", "n1", was_master=False),
                masters=(said("n0", 0), said("n1", AT + 1)),
                takeovers=(over("n1", AT + 1, others=9),),
            ),
            {H.AWAY, H.TAKEOVER, H.TAKEOVER_AFTER_POWER},
        ),
        (
            given(
                struck("wiped-store"),
                struck("wiped-store", "n1", was_master=False),
                masters=(said("n0", 0), said("n1", AT + 1)),
                takeovers=(over("n1", AT + 1),),
            ),
            {H.AWAY, H.TAKEOVER, H.DISKS},
        ),
        (
            given(
                struck("wiped-store", "n2", was_master=False),
                struck("wiped-store", "n1", was_master=False),
                nodes=3,
            ),
            {H.AWAY},
        ),
        (given(takeovers=(over("n1", AT),)), {H.TAKEOVER}),
    ],
)
def test_what_faults_have_done(found: Given, expected: set[Hazard]) -> None:
    assert hazards(found) == expected


def test_a_takeover_without_a_fault_is_one_by_hand() -> None:
    assert given(takeovers=(over("n1", AT),)).by_hazard == {H.TAKEOVER: ["by hand"]}


# --- verdicts ----------------------------------------------------------------------------------


def wiped(run: SyntheticRun) -> None:
    """The master's disk is lost, n1 takes over, and an acknowledged message is gone."""
    lose(run, "v13")
    fault = strike(run, "wiped-store")
    take_over(run, "n1", fault["t_start"] + 50)


def wiped_slave(run: SyntheticRun) -> None:
    lose(run, "v13")
    strike(run, "wiped-store", ["n1"])


def power(run: SyntheticRun) -> None:
    lose(run, "v13")
    strike(run, "power-failure")


def killed(run: SyntheticRun) -> None:
    lose(run, "v13")


def nothing_lost(run: SyntheticRun) -> None:
    strike(run, "power-failure")


@dataclass(frozen=True)
class Case:
    mode: tuple[str, str]
    plant: Callable[[SyntheticRun], None]
    verdict: str
    durable: str  # G1


CASES = [
    # A kill loses nothing in any mode: what was acknowledged and is gone is a bug.
    *(Case((e, f), killed, "fail", "fail") for e in ("async", "sync") for f in ("async", "sync")),
    Case(("async", "async"), wiped, "pass", "not promised"),
    Case(("async", "sync"), wiped, "pass", "not promised"),
    Case(("sync", "async"), wiped, "fail", "fail"),
    Case(("sync", "sync"), wiped, "fail", "fail"),
    Case(("async", "async"), wiped_slave, "fail", "fail"),
    Case(("async", "async"), power, "pass", "not promised"),
    Case(("sync", "async"), power, "pass", "not promised"),
    Case(("async", "sync"), power, "fail", "fail"),
    Case(("sync", "sync"), power, "fail", "fail"),
    Case(("async", "async"), nothing_lost, "pass", "not promised"),
    Case(("sync", "sync"), nothing_lost, "pass", "pass"),
]


_SOME = "A1 A2 A3 A4 A5 A24 A14 A15 A16 R15 S1 S5 S6 S9 T1 T6"
SOME = Rules(  # of each promise some: all of them take seconds
    rules=[rule for name, rule in RULES.items() if name in _SOME.split() or name in LEFT_OUT],
    stages=read_stages(BUILT_IN_STAGES),
)


FEW = replace(SOME, rules=[rule for rule in SOME.rules if rule.id in {"A5", "A16", "R15", "S9"}])
assert len(FEW.rules) == 4


def verdict_of(run: SyntheticRun, folder: Path) -> Verdict:
    return verify_run(run.write(folder / "run"), engine="duckdb", rules=SOME)


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{'-'.join(case.mode)}-{case.plant.__name__}"
)
def test_a_run_is_judged_by_its_mode(case: Case, tmp_path: Path) -> None:
    run = master_slave_run(*case.mode)
    case.plant(run)
    verdict = verdict_of(run, tmp_path)
    assert verdict.outcome.value == case.verdict
    assert verdict.promises["G1"] == case.durable
    assert verdict.promises["G7"] == "pass"
    assert verdict.lost == (0 if case.plant is nothing_lost else 1)
    told = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert told["mode"] == "/".join(case.mode)
    assert told["acknowledged_lost"] == verdict.lost
    for name in ("A5", "A24"):
        check = next(each for each in told["checks"] if each["id"] == name)
        assert check["verdict"] == ("pass" if case.plant is nothing_lost else "fail")
    assert check["violations"] == verdict.lost
    assert check.get("promised") == (False if case.durable == "not promised" else None)


def test_what_is_not_promised_is_told_with_its_counts(tmp_path: Path) -> None:
    run = master_slave_run("async", "async")
    wiped(run)
    verdict = verdict_of(run, tmp_path)
    (durable, *_) = verdict.not_promised
    assert durable.sentence == (
        "async/async: G1 is not promised once a slave was made the master (wiped-store): "
        "1 acknowledged message lost, A5 (acknowledged but unseen) 3, A24 (acknowledged and in no "
        "log) 1"
    )
    text = "\n".join(_summary(verdict))
    assert f"not promised: {durable.sentence}" in text
    assert "  G1 not promised" in text
    assert "acknowledged messages lost: 1" in text
    (state,) = (each for each in verdict.not_promised if each.promise == "G8")
    assert state.sentence == (
        "async/async: of G8 A14 and A16 are not promised once a broker was stopped or cut off "
        f"({FAULT}, wiped-store): none of these checks failed"
    )


def test_a_mode_that_is_not_told_is_the_default(tmp_path: Path) -> None:
    verdict = verdict_of(master_slave_run("async", None), tmp_path)
    assert verdict.mode == "async/async"


def test_without_a_fault_everything_is_promised(tmp_path: Path) -> None:
    run = master_slave_run("async", "async")
    run.faults[0]["name"] = "cut-clients"
    verdict = verdict_of(run, tmp_path)
    assert (verdict.outcome, verdict.not_promised) == (Outcome.PASS, [])
    assert set(verdict.promises.values()) == {"pass"}


@pytest.mark.parametrize("mode", [("sync", "sync"), ("async", "async")])
def test_no_rule_accuses_a_run_without_a_loss(mode: tuple[str, str], tmp_path: Path) -> None:
    verdict = verify_run(master_slave_run(*mode).write(tmp_path / "run"), engine="duckdb")
    assert [check.id for check in verdict.checks if check.verdict is not Outcome.PASS] == []
    assert {"A20", "A21", "R4", "R5", "R6", "R8", "R10", "R14", "S2", "S4", "T6"} <= {
        check.id for check in verdict.checks
    }


def test_rules_that_say_nothing_of_the_engine_are_named(tmp_path: Path) -> None:
    verdict = verdict_of(master_slave_run("sync", "sync"), tmp_path)
    told = " ".join(verdict.not_shown)
    for rule, reason in LEFT_OUT.items():
        assert f"{rule} ({RULES[rule].name})" in told
        assert reason in told
    assert not {check.id for check in verdict.checks} & set(LEFT_OUT)


def test_a_run_of_raft_is_judged_as_before(tmp_path: Path) -> None:
    """No key, no mark, no rule of the others, whatever the faults were."""
    run = SyntheticRun("a")
    lose(run, "v13")
    strike(run, "power-failure")
    verdict = verdict_of(run, tmp_path)
    told = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert set(told) == {"verdict", "promises", "checks", "coverage", "not_shown", "engines"}
    assert all("promised" not in check for check in told["checks"])
    assert (verdict.outcome, verdict.promises["G1"]) == (Outcome.FAIL, "fail")
    assert not {"A24", "R15", "S9"} & set(
        json.dumps(told).replace('"', " ").replace("(", " ").split()
    )


def test_a_promised_check_that_fails_fails_its_promise() -> None:
    """Also where all else of the promise is not given."""
    checks = [
        CheckResult(id="A4", name="lost", promise="G1", verdict=Outcome.FAIL, violations=3),
        CheckResult(id="R15", name="too few", promise="G1", verdict=Outcome.FAIL, violations=1),
    ]
    found = given(struck("wiped-store"))
    marked = found.marked(checks)
    verdict = Verdict(checks=marked, mode="sync/sync", not_promised=found.not_promised(marked))
    assert [check.promised for check in marked] == [False, True]
    assert verdict.promises["G1"] == "fail"
    unknown = [marked[0], replace(marked[1], verdict=Outcome.PASS)]
    assert replace(verdict, checks=unknown).promises["G1"] == "not promised"


# --- the rules of masters and slaves -----------------------------------------------------------


def of_rule(check: str, run: SyntheticRun, folder: Path) -> CheckResult:
    verdict = verdict_of(run, folder)
    return next(each for each in verdict.checks if each.id == check)


def late_slaves(run: SyntheticRun, index: int, nodes: tuple[str, ...] = ("n1", "n2")) -> None:
    """These nodes had the entry at `index`, and those behind it, after it was answered."""
    after = max(row["t"] for row in run.raft)
    for row in run.raft:
        if row["node"] in nodes and row["event"] in {"append", "apply"} and row["index"] >= index:
            row["t"] = after + row["index"]


def index_of(run: SyntheticRun, value: str) -> int:
    (first, *_) = run.logged(value, "message")
    return int(first["index"])


def test_too_few_replicas_are_seen(tmp_path: Path) -> None:
    run = master_slave_run("sync", "sync")
    late_slaves(run, index_of(run, "v13"))
    found = of_rule("R15", run, tmp_path)
    assert (found.verdict, found.violations) == (Outcome.FAIL, 1)
    assert found.witnesses[0]["value"] == "a.v13"
    assert (found.witnesses[0]["nodes"], found.witnesses[0]["wanted"]) == (1, 2)


def test_one_slave_in_time_is_enough_of_two(tmp_path: Path) -> None:
    run = master_slave_run("sync", "sync")
    late_slaves(run, index_of(run, "v13"), ("n2",))
    assert of_rule("R15", run, tmp_path / "two").verdict is Outcome.PASS
    run.manifest["in_sync_replicas"] = 3
    assert of_rule("R15", run, tmp_path / "three").verdict is Outcome.FAIL


def test_a_start_that_found_an_entry_tells_of_it(tmp_path: Path) -> None:
    """A slave was killed before it could tell what it had stored and acknowledged."""
    run = master_slave_run("sync", "sync")
    index = index_of(run, "v13")
    (entry,) = (row for row in run.events("n1", "append") if row["index"] == index)
    late_slaves(run, index, ("n2",))
    entry |= {"event": "start", "voters": ["n0", "n1", "n2"]}
    assert of_rule("R15", run, tmp_path).verdict is Outcome.PASS


def test_nobody_asks_an_asynchronous_master(tmp_path: Path) -> None:
    run = master_slave_run("async", "sync")
    late_slaves(run, index_of(run, "v13"))
    verdict = verdict_of(run, tmp_path)
    assert "R15" not in {check.id for check in verdict.checks}


def test_a_slave_with_another_log_is_seen(tmp_path: Path) -> None:
    run = master_slave_run("async", "async")
    last = max(row["index"] for row in run.log)
    for row in run.log:
        if row["node"] == "n2" and row["index"] > last - 2:
            row["committed"] = False
            row["chain"] += 1
    found = of_rule("S9", run, tmp_path / "there")
    assert (found.verdict, found.violations) == (Outcome.FAIL, 1)
    witness = found.witnesses[0]
    assert (witness["node"], witness["index"], witness["entries"]) == ("n2", last - 1, 2)
    run.manifest["left_behind"] = [{"broker_group": run.group, "node": "n2"}]
    assert of_rule("S9", run, tmp_path / "left").verdict is Outcome.PASS


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("_one_session")
def test_both_engines_say_the_same(tmp_path: Path) -> None:
    run = master_slave_run("sync", "sync")
    late_slaves(run, index_of(run, "v12"))
    last = max(row["index"] for row in run.log)
    for row in run.log:
        if row["node"] == "n2" and row["index"] > last - 2:
            row["committed"] = False
    lose(run, "v13")
    fault = strike(run, "wiped-store")
    strike(run, "power-failure", ["n1", "n2"])
    take_over(run, "n1", fault["t_start"] + 50)
    verdict = verify_run(run.write(tmp_path / "run"), engine="both", rules=FEW)
    assert verdict.engines == ("duckdb", "spark")
    told = {check.id: check for check in verdict.checks}
    assert not [check for check in told.values() if "differ" in (check.reason or "")]
    assert told["R15"].violations
    assert told["S9"].violations == 1
    assert [each.promise for each in verdict.not_promised][:2] == ["G1", "G8"]
    assert verdict.lost == 1
