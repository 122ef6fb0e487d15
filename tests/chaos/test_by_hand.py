"""Faults by hand: words become parameters, what can't be had is refused, files tell the truth."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from pathlib import Path

import pytest

from campaigns.rig.processes import Processes
from chaos.cluster.cluster import ClusterError, write_directory
from chaos.cluster.layout import fixed_ports, lay_out
from chaos.experiment import by_hand
from chaos.experiment.by_hand import FaultUsageError, HeldFault, parse_words
from chaos.nemesis.base import Observation


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    ports = fixed_ports(
        groups=1, replicas=3, name_servers=1, name_server_port=9876, base_port=10911
    )
    write_directory(tmp_path, lay_out(groups=1, replicas=3, name_servers=1, ports=ports))
    return tmp_path


def test_words_have_the_types_of_the_defaults() -> None:
    assert parse_words("kill", []) == {"target": "leader"}
    assert parse_words("restart-storm", ["rounds=2", "target=any"])["rounds"] == 2
    assert parse_words("partition-leader", ["clients=TRUE"]) == {"clients": True}


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("kil", [], r"no fault 'kil' \(did you mean 'kill'"),
        ("kill", ["leader"], "'leader' is not of the form key=value"),
        ("kill", ["targt=leader"], "unknown key 'targt'"),
        ("kill", ["target=ledaer"], "target: unknown 'ledaer'"),
        ("restart-storm", ["rounds=two"], "rounds: 'two' is no int"),
        ("partition-leader", ["clients=perhaps"], "clients: 'perhaps' is no bool"),
        ("restart-storm", ["rounds=-1"], r"rounds must be 0\.\."),
    ],
)
def test_wrong_words_are_named(name: str, words: list[str], message: str) -> None:
    with pytest.raises(FaultUsageError, match=message):
        parse_words(name, words)


def test_what_this_cluster_lacks_is_named(directory: Path) -> None:
    with pytest.raises(FaultUsageError, match="lacks links that can be changed: cut"):
        by_hand.inject(directory, "cut-clients", {"target": "leader"}, group=None)
    with pytest.raises(FaultUsageError, match="no group broker-z; there is broker-a"):
        by_hand.inject(directory, "kill", {"target": "leader"}, group="broker-z")
    assert by_hand.statuses(directory) == []
    assert by_hand.heal(directory) == []


def test_without_a_cluster_nothing_is_injected(tmp_path: Path) -> None:
    for call in (by_hand.statuses, by_hand.heal):
        with pytest.raises(ClusterError, match="holds no cluster"):
            call(tmp_path)


def test_an_active_fault_without_its_holder_is_abandoned(directory: Path) -> None:
    folder = directory / "faults"
    (folder / "pids").mkdir(parents=True)
    for number, state in ((1, "healed"), (2, "active"), (3, "active")):
        held = HeldFault(number=number, fault="kill", group="broker-a", params={}, state=state)
        text = json.dumps(dataclasses.asdict(held))
        (folder / f"fault-{number}.json").write_text(text)
    stat = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    record = {"pid": os.getpid(), "start_ticks": int(stat[19]), "argv": []}
    (folder / "pids" / "fault-3.json").write_text(json.dumps(record))
    states = [fault.state for fault in by_hand.statuses(directory)]
    assert states == ["healed", "abandoned", "active"]
    # Of the third one's holder, which is this process, nobody is to ask anything.
    (folder / "pids" / "fault-3.json").unlink()
    (folder / "fault-3.json").unlink()
    (told,) = by_hand.heal(directory)
    assert (told.name, told.state) == ("fault-2", "not healed")
    assert "its holder was killed" in told.evidence
    assert by_hand.heal(directory) == [], "it is told once"
    (folder / "fault-4.json").write_text("{")
    with pytest.raises(ClusterError, match=r"fault-4\.json is damaged"):
        by_hand.statuses(directory)


async def test_what_has_ended_unseen_is_not_waited_for() -> None:
    async def probe() -> Observation:
        return Observation(seen=None, evidence="it was quicker", final=True)

    async with asyncio.timeout(5):
        assert (await by_hand._await_seen(probe, 60.0)).evidence == "it was quicker"


@pytest.mark.cluster
def test_a_pause_by_hand_is_seen_and_healed(tmp_path: Path) -> None:
    with Processes(tmp_path, replicas=3) as group:
        group.start()
        held = by_hand.inject(tmp_path, "pause", {"target": "follower"}, group=None)
        try:
            assert (held.state, held.effect) == ("active", "taken"), held.evidence
            assert group.table.state(held.targets[0]) == "T"
            assert [fault.state for fault in by_hand.statuses(tmp_path)] == ["active"]
        finally:
            healed = by_hand.heal(tmp_path)
        assert [fault.state for fault in healed] == ["healed"]
        assert group.table.state(held.targets[0]) != "T"
