"""One scenario in five worlds: what runs in each, and the cluster that the world external gets."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import cast

import pytest

from campaigns.brought_cluster import BroughtCluster, cluster_file
from campaigns.five_worlds import SCENARIO, WORLDS, row_of, table, words_of
from chaos.cluster.external_file import read_file
from chaos.experiment.world_catalogue import WORLDS as KNOWN
from chaos.links.base import Link
from chaos.nemesis.catalogue import CATALOGUE
from chaos.scenario.scenario import load_scenario
from chaos.worlds.world import World
from tests.chaos.nemesis.fakes import FakeWorld
from verify.sources.manifest_tables import OWN_SYSTEM


def test_the_scenario_is_possible_in_every_world() -> None:
    assert set(WORLDS) == set(KNOWN)
    scenario = load_scenario(SCENARIO)
    for world in KNOWN.values():
        for step in scenario.faults:
            assert CATALOGUE[step.name].missing_in(world.parts, world.effects) is None


def test_each_world_is_run_with_its_settings(tmp_path: Path) -> None:
    words = {world: words_of(world, 7, "5.5.0", tmp_path) for world in WORLDS}
    assert all("--seed 7" in " ".join(each) for each in words.values())
    assert "--engine" in words["rocketmq"]
    assert f"file={tmp_path}/brought/cluster.toml" in words["external"]
    assert "--set" not in words["local"]


def test_a_row_tells_what_a_verdict_says(tmp_path: Path) -> None:
    checks = [
        {"id": name, "verdict": word}
        for name, word in (("A1", "pass"), ("A2", "fail"), ("A16", "unknown"), ("A4", "pass"))
    ]
    faults = {"kill": {"taken": 1}}
    (tmp_path / "verdict.json").write_text(
        json.dumps({"verdict": "fail", "checks": checks, "coverage": {"faults": faults}})
    )
    (tmp_path / "run.json").write_text(
        json.dumps({"system": "rocketmq", "version": "5.5.0", "engine": "dledger"})
    )
    row = row_of("rocketmq", tmp_path, "ledgermq chaos run")
    assert (row.verdict, row.passed, row.failed, row.unknown) == ("fail", 2, ("A2",), ("A16",))
    expected = "| rocketmq | rocketmq 5.5.0, dledger | fail | 2 | A2 | A16 | kill: 1 taken |"
    assert expected in table([row])


def brought() -> tuple[FakeWorld, World]:
    fake = FakeWorld()
    return fake, cast(World, fake)


async def test_commands_of_a_brought_cluster_do_what_they_say() -> None:
    fake, world = brought()
    cluster = BroughtCluster(world)
    node, peer = "broker-a-n0", "broker-a-n1"
    assert await cluster.answer(["state", node]) == "running"
    assert await cluster.answer(["kill", node]) == "ok"
    assert await cluster.answer(["state", node]) == "gone"
    assert await cluster.answer(["restart", node]) == "ok"
    assert json.loads(await cluster.answer(["status", node]))["role"] == "leader"
    assert await cluster.answer(["probe", node, peer]) == "passes"
    assert await cluster.answer(["cut", node, peer]) == "ok"
    assert await cluster.answer(["probe", node, peer]) == "cut"
    assert await cluster.answer(["heal", node, peer]) == "ok"
    assert not fake.cuts
    assert fake.probes == 2
    with pytest.raises(ValueError, match="no command: nuke"):
        await cluster.answer(["nuke", node])


def test_the_file_of_a_brought_cluster_has_a_command_for_each_fault(tmp_path: Path) -> None:
    fake, world = brought()
    path = tmp_path / "cluster.toml"
    path.write_text(cluster_file(world, "http://127.0.0.1:1"), encoding="utf-8")
    cluster = read_file(path)
    assert cluster.has_processes
    assert cluster.has_cuts
    assert cluster.system != OWN_SYSTEM
    assert [place.address for place in cluster.layout.brokers] == [
        place.address for place in fake.layout.brokers
    ]
    link = Link(who="broker-a-n0", whom="broker-a-n1")
    text = cluster.commands["cut"].format(who=link.who, whom=link.whom)
    assert shlex.split(text)[-1] == "http://127.0.0.1:1/cut/broker-a-n0/broker-a-n1"
