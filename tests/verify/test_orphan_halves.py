"""T6: when a half has waited too long for a question, and what makes its clock stand.

The timeout is one second and the interval half of one, so that a half may wait for two.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.verify.synthetic import MS, TOPIC, Rec, SyntheticRun
from verify.catalogue.rule_files import BUILT_IN_RULES, BUILT_IN_STAGES, read_rules, read_stages
from verify.engines.duckdb import DuckDBEngine
from verify.judge import judge_run
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles

RULES = tuple(rule for rule in read_rules(BUILT_IN_RULES) if rule.id == "T6")
SETTINGS = {"timeout_ms": 1000, "check_interval_ms": 500, "check_max": 15}


def accused(folder: Path, live: Callable[[SyntheticRun], None], heal_ms: int | None = None) -> bool:
    run = SyntheticRun("waiting", live=live)
    run.manifest["transactions"] = SETTINGS
    if heal_ms is not None:
        heal = run.find("half", tx="waiting.x6")["t_complete"] + heal_ms * MS
        run.manifest["phases"]["heal"] = [heal, heal]
    run.write(folder / "run")
    engine = DuckDBEngine(folder / "spill")
    try:
        (result,) = judge_run(
            engine,
            LocalFiles(folder / "run"),
            load_manifest(LocalFiles(folder / "run")),
            rules=RULES,
            stages=read_stages(BUILT_IN_STAGES),
            report=lambda text: None,
        ).results
    finally:
        engine.close()
    assert all(witness["tx"] == "waiting.x6" for witness in result.witnesses)
    return result.violations > 0


def wait(run: SyntheticRun, ms: int, *, alive: bool = True, who: str = "t6") -> None:
    """Time goes by; the producer `who` does something every 400 ms, if one is alive."""
    for _ in range(ms // 400):
        run.tick(399)
        if alive:
            run.op(who, "query", ms=0, topic=TOPIC, key="none", messages=[])
    run.tick(ms % 400)


def test_neither_asked_nor_discarded(tmp_path: Path) -> None:
    def live(run: SyntheticRun) -> None:
        run.half("t6", "x6", 0)
        wait(run, 2400)

    assert accused(tmp_path, live)


def test_decided_in_time(tmp_path: Path) -> None:
    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        wait(run, 1600)
        run.decide("t6", half, "rollback")
        wait(run, 2400)

    assert not accused(tmp_path, live)


def test_a_decision_that_nobody_acknowledged_settles_nothing(tmp_path: Path) -> None:
    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        run.decide("t6", half, "commit", "info")
        wait(run, 2400)

    assert accused(tmp_path, live)


def test_each_check_begins_it_anew(tmp_path: Path) -> None:
    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        wait(run, 1600)
        run.check("t6-check", half, "unknown")
        wait(run, 1600)
        run.decide("t6", half, "rollback")

    assert not accused(tmp_path, live)


def test_discarded_in_time(tmp_path: Path) -> None:
    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        wait(run, 1600)
        rec = Rec("message", "TRANS_CHECK_MAX_TIME_TOPIC", 0, half["messages"][0]["value"])
        rec.tx = half["tx"]
        run.append([rec])
        wait(run, 2400)

    assert not accused(tmp_path, live)


@pytest.mark.parametrize("ms", [1200, 2400])
def test_its_clock_stands_while_there_is_no_leader(tmp_path: Path, ms: int) -> None:
    """2.4 s without one, and then as much as it may wait, or more."""

    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        wait(run, 2400)
        run.elect("n2", 3)
        wait(run, ms)
        run.decide("t6", half, "rollback")

    assert accused(tmp_path, live) == (ms > 2000)


def test_what_a_node_finds_committed_as_it_starts_is_no_sign_of_a_leader(tmp_path: Path) -> None:
    """A group of which two are gone commits nothing until one of them is back."""

    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        wait(run, 2400)
        last = run.entries[-1]
        found = {"index": last.index - 1, "entry_term": last.term, "chain": last.chain}
        run.event("n1", "commit", **found)
        run.elect("n2", 3)
        wait(run, 1200)
        run.decide("t6", half, "rollback")

    assert not accused(tmp_path, live)


@pytest.mark.parametrize("ms", [1200, 2400])
def test_its_clock_stands_while_no_producer_lives(tmp_path: Path, ms: int) -> None:
    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        wait(run, 2400, alive=False)
        run.op("t9", "query", topic=TOPIC, key="none", messages=[])
        wait(run, ms, who="t9")
        run.decide("t6", half, "rollback")

    assert accused(tmp_path, live) == (ms > 2000)


@pytest.mark.parametrize(
    ("ms", "heard"),
    [
        pytest.param(1200, {"outcome": "info"}, id="unanswered"),
        pytest.param(2400, {"outcome": "info"}, id="unanswered, and too long behind that"),
        pytest.param(1200, {"outcome": "fail"}, id="failed"),
        pytest.param(1200, {"f": "local", "decision": "unknown"}, id="its own"),
        pytest.param(1200, {"broker_group": "another"}, id="of another group"),
    ],
)
def test_its_clock_stands_while_no_producer_reaches_the_group(
    tmp_path: Path, ms: int, heard: dict[str, str]
) -> None:
    """Cut from the leader, producers go on asking; no question of the leader reaches them."""

    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        for _ in range(6):
            run.tick(399)
            asked = {"f": "query", "topic": TOPIC, "key": "none", **heard}
            run.op("cut", ms=0, **asked)
        run.op("t9", "query", topic=TOPIC, key="none", messages=[])
        wait(run, ms, who="t9")
        run.decide("t6", half, "rollback")

    assert accused(tmp_path, live) == (ms > 2000)


@pytest.mark.parametrize("ms", [1200, 2400])
def test_stops_that_overlap_count_once(tmp_path: Path, ms: int) -> None:
    """The producers were silent for a part of the time without a leader."""

    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        wait(run, 800)
        wait(run, 1600, alive=False)
        run.elect("n2", 3)
        wait(run, ms)
        run.decide("t6", half, "rollback")

    assert accused(tmp_path, live) == (ms > 2000)


@pytest.mark.parametrize(
    ("who", "ms", "told"),
    [
        pytest.param("t6", 800, False, id="one stop"),
        pytest.param("t6", 1600, True, id="one stop, and too long"),
        pytest.param("heir", 1600, False, id="two stops"),
        pytest.param("heir", 2000, True, id="two stops, and too long"),
    ],
)
def test_each_further_stop_may_cost_another_interval(
    tmp_path: Path, who: str, ms: int, told: bool
) -> None:
    """The new leader looks once in each interval, and in one of them nobody lived to be asked."""

    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        run.tick(100)
        run.elect("n2", 3)
        alive = {"f": "query", "ms": 0, "topic": TOPIC, "key": "none", "messages": []}
        run.op("t6", **alive)
        wait(run, 800)
        run.tick(300)
        run.op(who, **alive)
        wait(run, ms, who=who)
        run.decide(who, half, "rollback")

    assert accused(tmp_path, live) == told


@pytest.mark.parametrize("ms", [1600, 2400])
def test_a_check_may_be_sent_to_a_client_as_it_ends(tmp_path: Path, ms: int) -> None:
    """Another one lives on; the broker asks it at its next look, an interval later."""

    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        run.op("t9", "query", topic=TOPIC, key="none", messages=[])
        wait(run, 800)
        wait(run, ms, who="t9")
        run.decide("t9", half, "rollback")

    assert accused(tmp_path, live) == (ms > 1600)


@pytest.mark.parametrize(("heal_ms", "told"), [(-1, True), (1500, False), (2200, True)])
def test_what_is_not_up_at_the_heal_begins_anew_there(
    tmp_path: Path, heal_ms: int, told: bool
) -> None:
    def live(run: SyntheticRun) -> None:
        half = run.half("t6", "x6", 0)
        wait(run, 3200)
        run.decide("t6", half, "rollback")

    assert accused(tmp_path, live, heal_ms) == told


def test_it_waits_too_long_behind_the_heal_as_well(tmp_path: Path) -> None:
    def live(run: SyntheticRun) -> None:
        run.half("t6", "x6", 0)
        wait(run, 4400)

    assert accused(tmp_path, live, 1500)
