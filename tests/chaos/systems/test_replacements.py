"""A lost node is brought back: its slave becomes the master, if it was one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.layout import fixed_ports, lay_out, layout_from_json
from chaos.systems.base import SystemFailedError
from chaos.systems.ledgermq_parts import SharedLayout, on_this_host
from chaos.systems.ledgermq_replacements import ReplacedMasters
from tests.chaos.nemesis import fakes

NODES = [f"{fakes.GROUP}-n{number}" for number in range(3)]


class Cluster:
    def __init__(self, run: Path) -> None:
        self.world = fakes.FakeWorld()
        ports = fixed_ports(
            groups=1, replicas=3, name_servers=1, name_server_port=9876, base_port=10911
        )
        layout = lay_out(groups=1, replicas=3, name_servers=1, ports=ports, engine="async")
        self.shared = SharedLayout(run, layout, traces=False, inside=on_this_host)
        self.replacements = ReplacedMasters(self.shared, self.world)
        (run / "config").mkdir()


def last_indexes(**indexes: int) -> dict[str, BrokerStatus]:
    return {
        f"{fakes.GROUP}-{node}": msgspec.structs.replace(fakes.status(node), last_index=index)
        for node, index in indexes.items()
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


async def test_the_slave_with_the_longest_log_becomes_the_master(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.world.states[NODES[0]] = "gone"
    await cluster.replacements.replace(NODES[0], last_indexes(n1=7, n2=9))
    calls = cluster.world.calls
    stops = [f"terminate {node}" for node in NODES[1:]]
    assert calls[:2] == stops, "nobody runs under another master than the others"
    assert sorted(calls[2:]) == [f"restart {node}" for node in NODES]
    for node in NODES:
        text = (tmp_path / "config" / f"{node}.toml").read_text(encoding="utf-8")
        assert tomllib.loads(text)["broker"]["master"] == "n2"
    kept = layout_from_json((tmp_path / "cluster.json").read_text(encoding="utf-8"))
    assert kept.master_of(fakes.GROUP) == cluster.shared.now.master_of(fakes.GROUP)


async def test_a_slave_is_started_on_its_empty_disk(cluster: Cluster) -> None:
    cluster.world.states[NODES[1]] = "gone"
    await cluster.replacements.replace(NODES[1], last_indexes(n0=9, n2=9))
    assert cluster.world.calls == [f"restart {NODES[1]}"]
    assert cluster.shared.now.master_of(fakes.GROUP).node == "n0"


async def test_a_master_without_a_slave_stays_lost(cluster: Cluster) -> None:
    cluster.world.states[NODES[0]] = "gone"
    with pytest.raises(SystemFailedError, match="no slave of broker-a-n0 answers"):
        await cluster.replacements.replace(NODES[0], {})
    assert not cluster.world.calls
