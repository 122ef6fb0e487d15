"""The campaign over a runner without processes: order, resuming, bounds, index, exit codes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.campaign.campaign import CampaignOptions, run_campaign
from chaos.campaign.plan import Campaign, CampaignError, load_campaign
from chaos.campaign.progress import PROGRESS_FILE, Progress, ProgressError
from chaos.experiment.world_catalogue import WORLDS
from tests.chaos.campaign.rig import FakeRunner, check, verdict_of
from verify.report.campaign_page import build_campaign_page

ROOT = Path(__file__).resolve().parents[3]
SCENARIO = """
name = "{name}"
[load]
seconds = 20
[[faults]]
name = "kill"
at_s = 1
duration_s = 1
[[faults]]
name = "pause"
at_s = 4
duration_s = 1
"""
FILE = """
name = "test"
worlds = ["sim"]
scenarios = ["one.toml"]
seeds = "1..6"
jobs = 2
[bounds]
whole_runs_max = 1
reports_max = 2
[minimise]
failures_max = 0
"""


def campaign_of(folder: Path, text: str = FILE) -> Campaign:
    for name in ("one", "two", "pause"):
        (folder / f"{name}.toml").write_text(SCENARIO.format(name=name))
    path = folder / "campaign.toml"
    path.write_text(text)
    return load_campaign(path)


def finished(
    campaign: Campaign, folder: Path, runner: FakeRunner, **changes: Any
) -> tuple[str, dict[str, Any]]:
    options = {
        "folder": folder,
        "sources": "these",
        "jobs": None,
        "with_spark": True,
        "with_minimise": True,
        "report": lambda _: None,
        "publish": build_campaign_page,
        **changes,
    }
    verdict = asyncio.run(run_campaign(campaign, CampaignOptions(**options), runner))
    return verdict, json.loads((folder / "index.json").read_text())


def passes(*_: object) -> dict[str, Any]:
    return verdict_of(
        check("A4", "pass"),
        faults={"kill": {"taken": 1}, "pause": {"not_taken": 1}},
        availability=[{"measure": "recovery", "name": "0 kill", "took_ms": 250.0}],
    )


def fails_on(*seeds: int, name: str = "A4", **more: Any) -> Callable[..., dict[str, Any]]:
    def judge(scenario: Any, of: Any) -> dict[str, Any]:
        if of.seed not in seeds:
            return passes()
        return verdict_of(check(name, **more), faults={"kill": {"taken": 1}})

    return judge


def test_all_that_is_planned_runs_once_and_passing_runs_are_cut(tmp_path: Path) -> None:
    text = FILE.replace('"one.toml"', '"one.toml", "two.toml"').replace(
        'worlds = ["sim"]', 'worlds = ["sim", "local"]\nengines = ["raft", "pysyncobj"]'
    )
    runner = FakeRunner(passes)
    verdict, index = finished(campaign_of(tmp_path, text), tmp_path / "out", runner)
    assert verdict == "pass"
    assert len(runner.runs) == len(set(runner.runs)) == index["done"] == 2 * 2 * 2 * 6
    # Real time first, one at a time.
    assert all("-local-" in name for name in runner.runs[:24])
    assert index["systems"] == [
        "ledgermq pysyncobj, local",
        "ledgermq pysyncobj, sim",
        "ledgermq raft, local",
        "ledgermq raft, sim",
    ]
    left = sorted(path.name for path in (tmp_path / "out/runs/one-sim-raft-1").iterdir())
    assert left[:1] == ["run.json"]
    assert "nodes" not in left
    assert len(list((tmp_path / "out/runs").glob("*/report.html"))) == 2
    # One in ten by two engines.
    assert index["judged_by_two"] == len(runner.confirmed) == 5


def test_failing_runs_stay_whole_up_to_the_bound_and_spark_judges_each(tmp_path: Path) -> None:
    runner = FakeRunner(fails_on(2, 4, 5))
    verdict, index = finished(campaign_of(tmp_path), tmp_path / "out", runner)
    assert verdict == "fail"
    whole = [row["run"] for row in index["runs"] if row["whole"]]
    assert len(whole) == 1
    assert (tmp_path / "out/runs" / whole[0] / "nodes/store").is_file()
    assert index["verdicts"] == {"pass": 3, "unknown": 0, "fail": 3}
    assert index["counts"]["lost"] == 3
    confirmed = {int(name.rpartition("-")[2]) for name in runner.confirmed}
    assert confirmed == {1, 2, 4, 5}  # the first run is one in ten
    again = FakeRunner(fails_on(2))
    finished(campaign_of(tmp_path), tmp_path / "off", again, with_spark=False)
    assert again.confirmed == []


@pytest.mark.parametrize("torn", [False, True])
def test_a_killed_campaign_goes_on_and_begins_the_cut_off_run_anew(
    tmp_path: Path, torn: bool
) -> None:
    class KilledError(Exception):
        pass

    def kill_at_the_third(out: Path) -> None:
        if len(first.runs) == 3:
            raise KilledError

    first = FakeRunner(passes, before=kill_at_the_third)
    campaign = campaign_of(tmp_path, FILE.replace("jobs = 2", "jobs = 1"))
    with pytest.raises(ExceptionGroup):
        finished(campaign, tmp_path / "out", first)
    assert json.loads((tmp_path / "out/index.json").read_text())["verdict"] == "unknown"
    assert (tmp_path / "out/runs/one-sim-raft-3/nodes").is_dir()
    if torn:
        with (tmp_path / "out" / PROGRESS_FILE).open("ab") as file:
            file.write(b'{"kind":"run","run":"one-sim-raft-3"')
    second = FakeRunner(passes)
    verdict, index = finished(campaign, tmp_path / "out", second)
    assert second.runs == [f"one-sim-raft-{seed}" for seed in (3, 4, 5, 6)]
    assert (verdict, index["done"]) == ("pass", 6)
    third = FakeRunner(passes)
    assert finished(campaign, tmp_path / "out", third)[0] == "pass"
    assert third.runs == []


def test_results_of_another_plan_or_program_are_not_mixed(tmp_path: Path) -> None:
    finished(campaign_of(tmp_path), tmp_path / "out", FakeRunner(passes))
    other = campaign_of(tmp_path, FILE.replace("1..6", "1..7"))
    with pytest.raises(ProgressError, match="another plan"):
        finished(other, tmp_path / "out", FakeRunner(passes))
    with pytest.raises(ProgressError, match="other sources"):
        finished(campaign_of(tmp_path), tmp_path / "out", FakeRunner(passes), sources="those")
    (tmp_path / "out" / PROGRESS_FILE).write_text("no JSON\n")
    with pytest.raises(ProgressError, match="no progress"):
        Progress(tmp_path / "out", plan="p", sources="s")


def test_a_run_without_a_verdict_is_unknown_and_left_to_be_looked_at(tmp_path: Path) -> None:
    runner = FakeRunner(lambda _, of: None if of.seed == 3 else passes())
    verdict, index = finished(campaign_of(tmp_path), tmp_path / "out", runner)
    assert verdict == "unknown"
    (row,) = [row for row in index["runs"] if row["verdict"] == "unknown"]
    assert (row["reason"], row["whole"]) == ("no leader", True)
    case = ET.parse(tmp_path / "out/junit.xml").getroot().find(".//error")
    assert case is not None
    assert case.get("message") == "no leader"


def test_the_index_tells_of_faults_by_system(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    judge = fails_on(5, witnesses=[{"value": "<script>"}])
    _, index = finished(campaign_of(tmp_path), folder, FakeRunner(judge))
    rows = {row["name"]: row["cells"]["ledgermq raft, sim"] for row in index["faults"]}
    assert rows["kill"]["verdict"] == "fail"
    assert rows["kill"]["runs"] == 6
    assert rows["kill"]["effects"] == {"taken": 6}
    assert rows["kill"]["unavailable_p50_ms"] == rows["kill"]["unavailable_p95_ms"] == 250.0
    assert rows["kill"]["measured"] == 5
    # Not taken proves nothing, neither here nor there.
    assert rows["pause"]["verdict"] is None
    assert rows["pause"]["effects"] == {"not_taken": 5}
    page = (folder / "index.html").read_text()
    assert "not tried" in page
    assert "not taken 5" in page
    assert "<script>" not in page
    assert "http:" not in page
    assert "https:" not in page
    suite = ET.parse(folder / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("6", "1", "0")


def test_one_failure_of_each_check_and_system_is_minimised(tmp_path: Path) -> None:
    def judge(scenario: Any, of: Any) -> dict[str, Any]:
        has_kill = any(step.name == "kill" for step in scenario.faults)
        return verdict_of(check("A2" if of.seed == 5 else "A4", "fail" if has_kill else "pass"))

    campaign = campaign_of(tmp_path, FILE.replace("failures_max = 0", "failures_max = 5"))
    verdict, index = finished(campaign, tmp_path / "out", FakeRunner(judge))
    assert verdict == "fail"
    assert [(row["run"], row["check"]) for row in index["minimised"]] == [
        ("one-sim-raft-1", "A4"),
        ("one-sim-raft-5", "A2"),
    ]
    small = index["minimised"][0]
    assert small["faults"] == ["kill at 1 s for 1 s"]
    assert small["repeated"]
    assert (small["failed"], small["ran"]) == (1, 1)
    assert "minimised/one-sim-raft-1/scenario.toml" in small["command"]
    assert (tmp_path / "out/minimised/one-sim-raft-1/run/nodes").is_dir()
    assert "became 1 in" in (tmp_path / "out/index.html").read_text()
    again = FakeRunner(judge)
    finished(campaign, tmp_path / "out", again)
    assert again.runs == []


def test_an_engine_runs_in_the_worlds_that_have_it_with_their_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.experiment.rocketmq_world.require_java", lambda: "java")
    both = '["rocketmq", "sim"]\nengines = ["dledger", "raft"]'
    settings = '[settings.rocketmq]\nversion = "5.5.0"\n[bounds]'
    text = FILE.replace('["sim"]', both).replace("[bounds]", settings)
    campaign = campaign_of(tmp_path, text)
    runs = [(run.world, run.engine) for run in campaign.runs if run.seed == 1]
    assert runs == [("rocketmq", "dledger"), ("sim", "raft")]
    told: dict[str, list[str]] = {}

    def judge(_: Any, of: Any) -> dict[str, Any]:
        told[of.engine] = of.words
        return verdict_of(check("A4", "pass"))

    finished(campaign, tmp_path / "out", FakeRunner(judge))
    assert "--set version=5.5.0" in " ".join(told["dledger"])
    assert "--set" not in told["raft"]
    other = campaign_of(tmp_path, text.replace("5.5.0", "5.4.0"))
    assert other.digest() != campaign.digest()


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"1..6"', '"6..1"', "seeds: 6..1 is empty"),
        ('"1..6"', '"six"', "seeds: 'six' is not A..B"),
        ('"1..6"', '"1..1000000"', "more than 100000 runs"),
        ('["sim"]', '["simm"]', "worlds: unknown 'simm' (did you mean 'sim'?)"),
        ('["sim"]', "[]", "at least one of worlds"),
        ('"one.toml"', '"none.toml"', "there is no file"),
        ('"one.toml"', '"one.toml", "one.toml"', "scenarios names one twice"),
        ("jobs = 2", "jobs = 0", "jobs must be 1..64, not 0"),
        ("jobs = 2", "jops = 2", "unknown key 'jops' (did you mean 'jobs'?)"),
        ("reports_max = 2", "reports_max = -1", "bounds.reports_max must be"),
        ("reports_max = 2", "report_max = 1", "unknown key 'report_max'"),
        ('name = "test"', 'name = "a/b"', "is not 1..100 letters"),
        ('["sim"]', '["sim"]\nengines = ["dledger"]', "engines: unknown 'dledger'"),
        ('["sim"]', '["sim", "rocketmq"]\nengines = ["raft"]', "the world rocketmq has none"),
        ('["sim"]', '["sim", "rocketmq"]', "the world rocketmq has no raft, the engine of one"),
        ("[bounds]", "[settings.local]\n[bounds]", "unknown key 'local' in settings"),
        ("[bounds]", '[settings.sim]\nversion = "1"\n[bounds]', "has no setting 'version'"),
    ],
)
def test_a_wrong_file_is_refused_by_the_name_of_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, told: str
) -> None:
    monkeypatch.setattr("chaos.experiment.rocketmq_world.require_java", lambda: "java")
    with pytest.raises(CampaignError) as refused:
        campaign_of(tmp_path, FILE.replace(old, new))
    assert told in str(refused.value)


@pytest.mark.parametrize("name", ["random-local", "random-sim", "rocketmq-modes"])
def test_the_campaigns_of_this_project_can_be_read(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    everywhere = {
        world: dataclasses.replace(spec, missing=lambda: None) for world, spec in WORLDS.items()
    }
    monkeypatch.setattr("chaos.campaign.plan.WORLDS", everywhere)
    campaign = load_campaign(ROOT / "campaigns" / f"{name}.toml")
    assert campaign.runs
    assert campaign.name == name


def test_a_scenario_that_is_named_as_a_fault_counts_all_of_its_runs(tmp_path: Path) -> None:
    campaign = campaign_of(tmp_path, FILE.replace("one.toml", "pause.toml"))

    def judged(*_: object) -> dict[str, Any]:
        """The fault that the scenario is named after did not take effect."""
        return verdict_of(
            check("A4", "fail", violations=2),
            faults={"kill": {"taken": 1}, "pause": {"not_taken": 1}},
            availability=[{"measure": "recovery", "name": "0 kill", "took_ms": 250.0}],
        )

    _, index = finished(campaign, tmp_path / "out", FakeRunner(judged))
    (row,) = index["scenarios"]
    (cell,) = row["cells"].values()
    assert (row["name"], cell["runs"], cell["verdict"]) == ("pause", 6, "fail")
    assert (cell["effects"], cell["measured"]) == ({}, 6)
    faults = {row["name"]: next(iter(row["cells"].values())) for row in index["faults"]}
    assert (faults["pause"]["runs"], faults["pause"]["effects"]) == (0, {"not_taken": 6})


def test_of_a_run_without_a_verdict_no_faults_are_known(tmp_path: Path) -> None:
    _, index = finished(campaign_of(tmp_path), tmp_path / "out", FakeRunner(lambda *_: None))
    assert [row["name"] for row in index["faults"]] == ["not judged"]
