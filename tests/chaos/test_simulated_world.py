"""The simulator as a world: the same scenario, judged like any other run, and repeatable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaos.experiment.experiment import run_experiment
from chaos.scenario.scenario import load_scenario, parse_scenario
from chaos.workload.parts.catalogue import PARTS
from client.consume.consumer_admin import ConsumerAdmin
from verify.export.run_export import export_run
from verify.run import verify_run

TINY = """
name = "tiny"
[cluster]
name_servers = 1
access = true
[load]
seconds = 4
[workload]
topics = ["orders"]
queues = 2
plain_clients = 1
plain_processes = 2
send_rate = 20
transaction_clients = 1
transaction_processes = 1
transaction_rate = 5
push_clients = 2
push_restart_s = 2
[transactions]
timeout_ms = 500
check_interval_ms = 300
[[faults]]
name = "kill"
at_s = 0.5
duration_s = 0.5
[[faults]]
name = "partition-leader"
at_s = 2
duration_s = 1
[[faults]]
name = "slow-links"
at_s = 3.2
duration_s = 0.5
"""

RESETS_OF_MEMBERS = Path(__file__).parents[2] / "campaigns/planted/resets-of-members.toml"
SEEN_FROM_INSIDE = (
    "kill-in-recovery",
    "jitter",
    "bandwidth-limit",
    "lost-file",
    "late-burst",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("simulated")
    scenario = parse_scenario(TINY, name="tiny")
    runs = [
        run_experiment(scenario, world="sim", seed=seed, out=folder / name)
        for name, seed in (("one", 7), ("again", 7), ("other", 8))
    ]
    export_run(runs[0])
    return runs


def test_the_same_seed_has_the_same_history(runs: list[Path]) -> None:
    one, again, other = ((run / "history.msgpack").read_bytes() for run in runs)
    assert one == again
    assert one != other


def test_faults_take_effect_and_heal(runs: list[Path]) -> None:
    import pyarrow.parquet as pq

    rows = pq.read_table(runs[0] / "faults").to_pylist()
    assert [row["name"] for row in rows] == ["kill", "partition-leader", "slow-links"]
    assert {row["effect"] for row in rows} == {"taken"}
    assert all(row["t_healed"] is not None for row in rows)


def test_what_it_must_do_and_see_by_itself_takes_effect(tmp_path: Path) -> None:
    """What processes and proxies show on a host is here the simulator's own: that a store was
    opened, jitter and rates of links, a connection that takes seconds, a file that is gone."""
    import pyarrow.parquet as pq

    text = """
[load]
seconds = 15
[workload]
topics = ["orders"]
queues = 1
plain_clients = 1
plain_processes = 1
send_rate = 5
transaction_clients = 0
push_clients = 0
pull_clients = 0
"""
    for number, name in enumerate(SEEN_FROM_INSIDE):
        text += f'[[faults]]\nname = "{name}"\nat_s = {0.5 + 3 * number}\nduration_s = 0.5\n'
    run = run_experiment(
        parse_scenario(text, name="inside"), world="sim", seed=3, out=tmp_path / "run"
    )
    rows = {row["name"]: row for row in pq.read_table(run / "faults").to_pylist()}
    assert rows.keys() == set(SEEN_FROM_INSIDE)
    assert {name: row["effect"] for name, row in rows.items()} == dict.fromkeys(rows, "taken")
    assert all(row["t_healed"] is not None for row in rows.values())


def test_its_run_is_judged_as_any_other(runs: list[Path]) -> None:
    manifest = json.loads((runs[0] / "run.json").read_text(encoding="utf-8"))
    assert manifest["world"] == "sim"
    assert manifest["complete"] is True
    verdict = verify_run(runs[0], engine="duckdb")
    failed = [check.id for check in verdict.checks if check.verdict.value == "fail"]
    assert not failed
    assert verdict.outcome.value == "pass", [c.id for c in verdict.checks if c.reason]


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_part_of_the_workload_alone_gives_no_alarm(name: str, tmp_path: Path) -> None:
    scenario = parse_scenario(f"{TINY}\n[workload.{name}]\n", name=name)
    run = run_experiment(scenario, world="sim", seed=1, out=tmp_path / "run")
    verdict = verify_run(run, engine="duckdb")
    alarms = {check.id: check.reason for check in verdict.checks if check.verdict.value == "fail"}
    assert (verdict.outcome.value, alarms) == ("pass", {})


def _failed_of_resets(tmp_path: Path) -> list[str]:
    scenario = load_scenario(RESETS_OF_MEMBERS)
    verdict = verify_run(
        run_experiment(scenario, world="sim", seed=1, out=tmp_path / "run"), engine="duckdb"
    )
    of_resets = next(check for check in verdict.checks if check.id == "C9")
    assert of_resets.examined > 5
    return [check.id for check in verdict.checks if check.verdict.value == "fail"]


def test_members_that_are_told_of_a_reset_follow_it(tmp_path: Path) -> None:
    assert _failed_of_resets(tmp_path) == []


def test_members_that_do_not_listen_to_a_reset_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ConsumerAdmin, "_reset", lambda *_: None)
    assert {"C9", "M8"} & set(_failed_of_resets(tmp_path))
