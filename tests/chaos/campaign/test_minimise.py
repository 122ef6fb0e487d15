"""A failing run minimised, over a runner without processes; and what a verdict counts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from chaos.campaign.minimise import Minimised, MinimiseError, minimise_run
from chaos.campaign.outcome import Before, read_outcome
from chaos.campaign.plan import Experiment
from chaos.scenario.scenario import Scenario, load_scenario, parse_scenario
from tests.chaos.campaign.rig import FakeRunner, check, verdict_of

TEXT = """
name = "whole"
[load]
seconds = 30
[[faults]]
name = "kill"
at_s = 2
duration_s = 1
repeat = 5
every_s = 2
[[faults]]
name = "pause"
at_s = 20
duration_s = 1
"""


DRAWN = """
name = "whole"
[load]
seconds = 60
[schedule]
mean_s = 4
[[sequences]]
at_s = 30
steps = [ { name = "kill" }, { name = "pause", duration_s = 2 } ]
"""
POSSIBLE = ["kill", "pause", "terminate"]


def failed_run(folder: Path, world: str, *names: str, text: str = TEXT, **more: Any) -> Path:
    run = folder / "run"
    run.mkdir(parents=True)
    manifest = {
        "world": world,
        "engine": "raft",
        "seed": 7,
        "scenario": {"name": "whole", "text": text},
        **more,
    }
    (run / "run.json").write_text(json.dumps(manifest))
    verdict = verdict_of(*(check(name) for name in names))
    (run / "verdict.json").write_text(json.dumps(verdict))
    return run


def minimised(run: Path, runner: FakeRunner, **changes: Any) -> Minimised:
    options: dict[str, Any] = {
        "runner": runner,
        "attempts": 200,
        "repeats": 3,
        "check": None,
        "report": lambda _: None,
        **changes,
    }
    return asyncio.run(minimise_run(run, run.parent / "out", **options))


def has_pause(scenario: Scenario, _: Experiment) -> dict[str, Any]:
    fails = any(step.name == "pause" for step in scenario.faults)
    return verdict_of(check("A16", promise=None), check("A4", "fail" if fails else "pass"))


@pytest.mark.parametrize(("world", "times"), [("sim", 1), ("local", 3)])
def test_what_is_left_fails_the_same_check(tmp_path: Path, world: str, times: int) -> None:
    run = failed_run(tmp_path, world, "A4", "A16")
    runner = FakeRunner(has_pause)
    found = minimised(run, runner)
    assert found.check == "A4"  # it has a promise
    assert found.faults == ["pause at 1 s for 1 s"]
    assert (found.faults_before, found.failed, found.ran) == (6, times, times)
    assert len(runner.runs) == found.attempts
    assert {step.ran for step in found.steps if step.accepted} == {times}
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["minimised.json", "run", "scenario.toml"]
    assert json.loads((out / "minimised.json").read_text())["command"] == found.command
    assert found.command.endswith(f"--world {world} --seed 7 --engine raft")
    left = load_scenario(out / "scenario.toml")
    assert has_pause(left, Experiment(world="", engine="", seed=0, scenario_file=out))["verdict"]
    assert (out / "run/verdict.json").is_file()


def test_what_the_seed_drew_is_taken_away_one_by_one(tmp_path: Path) -> None:
    """As they were drawn they fail; one pause is enough, whichever it is."""
    whole = parse_scenario(DRAWN, name="whole").steps(seed=7, possible=frozenset(POSSIBLE))
    assert len({step.name for step in whole}) == len(POSSIBLE)
    run = failed_run(tmp_path, "sim", "A4", text=DRAWN, faults_possible=POSSIBLE)
    tried: list[Scenario] = []

    def judge(scenario: Scenario, of: Experiment) -> dict[str, Any]:
        tried.append(scenario)
        return has_pause(scenario, of)

    found = minimised(run, FakeRunner(judge))
    assert tried[0].faults == whole
    assert all(step.within_majority for step in whole)
    assert found.faults_before == len(whole)
    assert len(found.faults) == 1
    assert found.faults[0].startswith("pause at 1 s")
    left = load_scenario(tmp_path / "out" / "scenario.toml")
    assert (left.schedule, left.sequences, left.faults[0].within_majority) == (None, (), True)


def test_what_was_drawn_from_is_known_or_it_is_refused(tmp_path: Path) -> None:
    run = failed_run(tmp_path, "sim", "A4", text=DRAWN)
    with pytest.raises(MinimiseError, match=r"run\.json lacks faults_possible"):
        minimised(run, FakeRunner(has_pause))


def test_a_run_that_can_not_be_judged_did_not_fail(tmp_path: Path) -> None:
    run = failed_run(tmp_path, "local", "A4")
    found = minimised(run, FakeRunner(lambda *_: None))
    assert not found.repeated
    assert (found.failed, found.ran, found.command) == (0, 3, "")
    assert not (tmp_path / "out/run").exists()


def test_what_is_no_failing_run_is_refused(tmp_path: Path) -> None:
    runner = FakeRunner(has_pause)
    with pytest.raises(MinimiseError, match=r"run\.json can't be read"):
        minimised(tmp_path, runner)
    run = failed_run(tmp_path, "sim", "A4")
    with pytest.raises(MinimiseError, match="A9 did not fail; failed are A4"):
        minimised(run, runner, check="A9")
    (run / "verdict.json").write_text(json.dumps(verdict_of(check("A4", "pass"))))
    with pytest.raises(MinimiseError, match="no check that fails"):
        minimised(run, runner)
    assert runner.runs == []


def test_counts_come_from_the_checks_that_they_are_named_after(tmp_path: Path) -> None:
    unseen = [{"value": "a", "lost": True}, {"value": "b", "lost": False}]
    verdict = verdict_of(
        check("A4", violations=3),
        check("A5", violations=6, witnesses=unseen),
        check("A2", violations=2),
        check("A15", "pass"),
        check("S5", violations=4),
    )
    verdict["coverage"] = {
        "operations": {"send": {"ok": 7, "info": 1}, "decide": {"ok": 2}},
        "before_faults": {"sends": 3, "per_second": 1.5, "p50_ms": 2.0, "p99_ms": 9.0},
        "availability": [
            {"measure": "recovery", "name": "0 kill", "took_ms": 700.0},
            {"measure": "reads", "name": "0 kill", "took_ms": 30.0},
            {"measure": "gap", "name": "plain-0.0", "took_ms": 800.0},
        ],
    }
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    outcome = read_outcome(
        tmp_path,
        name="n",
        scenario="s",
        of=Experiment(world="sim", engine="raft", seed=1, scenario_file=tmp_path),
        trouble="",
        took_s=1.0,
    )
    assert outcome.counts == {"lost": 3, "doubled": 2, "hidden": 5, "gone": 0, "rewound": 4}
    assert (outcome.acknowledged, outcome.before) == (
        9,
        Before(per_second=1.5, p50_ms=2.0, p99_ms=9.0),
    )
    assert (outcome.recoveries, outcome.reads) == ([("kill", 700.0)], [("kill", 30.0)])


@pytest.mark.parametrize(
    ("recorded", "given"),
    [
        ({"engine": "sync", "flush": "sync"}, "sync-flush"),
        ({"engine": "async", "flush": "async"}, "async"),
        ({"engine": "raft"}, "raft"),
    ],
)
def test_the_engine_is_the_one_of_the_run(
    tmp_path: Path, recorded: dict[str, str], given: str
) -> None:
    """run.json tells of a mode that flushes by two keys."""
    run = failed_run(tmp_path, "sim", "A4", **recorded)
    engines: set[str] = set()

    def judge(scenario: Scenario, of: Experiment) -> dict[str, Any]:
        engines.add(of.engine)
        return has_pause(scenario, of)

    found = minimised(run, FakeRunner(judge), attempts=3)
    assert engines == {given}
    assert found.command.endswith(f"--engine {given}")


def test_fewer_attempts_than_repeats_are_as_many_repeats(tmp_path: Path) -> None:
    """What failed each time that it ran is not told of as "not repeated"."""
    run = failed_run(tmp_path, "local", "A4")
    found = minimised(run, FakeRunner(has_pause), attempts=2, repeats=3)
    assert (found.repeated, found.failed, found.ran, found.attempts) == (True, 2, 2, 2)
    assert not found.is_complete
    assert (tmp_path / "out" / "run" / "verdict.json").is_file()
