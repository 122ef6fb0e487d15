"""Scenario files: what is right is read, what is wrong is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.scenario import ScenarioError, load_scenario, parse_scenario

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.toml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_own_scenarios_are_valid(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    assert scenario.faults
    assert scenario.text == path.read_text()


def test_defaults_and_repeats() -> None:
    scenario = parse_scenario(
        '[load]\nseconds = 30\n[[faults]]\nname = "kill"\nat_s = 2\nrepeat = 3\nevery_s = 4\n',
        name="x",
    )
    assert scenario.name == "x"
    assert [step.at_s for step in scenario.faults] == [2, 6, 10]
    assert scenario.faults[0].params == {"target": "leader"}
    assert scenario.limits is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[load", "not TOML"),
        ("[wrkload]\n", r"unknown key 'wrkload' \(did you mean 'workload'"),
        ("[workload]\nsend_rat = 5\n", r"'send_rat' \(did you mean 'send_rate'.*in workload"),
        ('[workload]\nsend_rate = "5"\n', r"workload\.send_rate must be a number"),
        ("[workload]\nqueues = true\n", r"workload\.queues must be an integer"),
        ("[workload]\nqueues = 0\n", r"workload\.queues must be 1\.\.64"),
        ("[workload]\ntopics = [1]\n", r"workload\.topics\[0\] must be text"),
        ("[workload]\ncommit_share = 0.9\nrollback_share = 0.2\n", "at most 1"),
        ('[[faults]]\nname = "kil"\n', r"unknown fault 'kil' \(did you mean 'kill'"),
        ("[[faults]]\nat_s = 1\n", r"faults\[0\]\.name is missing"),
        ('[[faults]]\nname = "kill"\ntargt = "leader"\n', r"'targt' \(did you mean 'target'"),
        ('[[faults]]\nname = "kill"\ntarget = "ledaer"\n', r"'ledaer' \(did you mean 'leader'"),
        ('[[faults]]\nname = "kill"\nat_s = 59\nduration_s = 2\n', "until 61 s"),
        ('[[faults]]\nname = "kill"\nrepeat = 2\n', "every_s must be above 0"),
        ('[[faults]]\nname = "slow-links"\nlatency_ms = "x"\n', "latency_ms must be an integer"),
        ("[limits]\nrto_ms = 5\n", r"limits\.gap_ms is missing"),
        ("[dedupe]\nwindow_ms = 5\n", "must cover the workload's retries"),
        ('[cluster.raft]\nheartbeat_ms = "fast"\n', r"cluster\.raft\.heartbeat_ms must be"),
        ("faults = 3\n", "faults must be a list"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(text, name="x")


def test_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[nonsense]\n")
    with pytest.raises(ScenarioError, match=r"bad\.toml: unknown key 'nonsense'"):
        load_scenario(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        load_scenario(path)
