"""Disks that are gone: where a node may start on an empty one, and where it must wait."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from chaos.cluster.broker_status import BrokerStatus
from chaos.nemesis.base import Fault
from chaos.nemesis.catalogue import CATALOGUE
from chaos.systems.store_files import DirectoryFiles
from tests.chaos.nemesis import fakes

NODES = [f"{fakes.GROUP}-n{number}" for number in range(3)]


class Stores:
    def __init__(self, root: Path) -> None:
        self._root = root

    def files(self, node: str) -> DirectoryFiles:
        return DirectoryFiles(self._root / node)


class Replacements:
    """Brings the node back with what the others have."""

    def __init__(self, world: fakes.FakeWorld, *, starts_empty: bool) -> None:
        self.starts_empty = starts_empty
        self.replaced: list[str] = []
        self._world = world

    async def replace(self, node: str, statuses: Mapping[str, BrokerStatus]) -> None:
        self.replaced.append(node)
        self._world.states[node] = "S"


@pytest.fixture(params=[True, False], ids=["elected", "configured"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> fakes.FakeWorld:
    made = fakes.FakeWorld()
    made.stores = Stores(tmp_path)
    made.replacements = Replacements(made, starts_empty=request.param)
    for node in NODES:
        made.stores.files(node).restore_all({"log": b"all that it had"})
    return made


def make(world: fakes.FakeWorld, name: str, **params: object) -> Fault:
    known = {node: fakes.status(node[-2:]) for node in NODES}
    spec = CATALOGUE[name]
    more = {**spec.parameters, "target": "leader", **params}
    return spec.make(fakes.context(world, statuses=known, **more))


@pytest.mark.parametrize("name", ["wiped-store", "lost-machine"])
async def test_a_disk_is_gone_and_its_node_is_replaced(world: fakes.FakeWorld, name: str) -> None:
    ahead = {"ahead_s": 0.0} if name == "lost-machine" else {}
    fault = make(world, name, **ahead)
    await fault.setup()
    (node,) = fault.targets
    assert node == world.leader()
    assert (await fault.probe()).seen is False
    await fault.inject()
    assert world.stores.files(node).names() == []
    # One that may take part in something on an empty disk stays down.
    assert (world.states[node] == "gone") is (not world.replacements.starts_empty)
    if world.replacements.starts_empty:
        world.phases[node] = ["unborn"]
    seen = await fault.probe()
    assert seen.seen is True, seen.evidence
    assert world.replacements.replaced == []
    await fault.heal()
    assert world.replacements.replaced == [node]
    assert world.untouched


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_lost_machine_says_whether_it_was_alone_before(
    world: fakes.FakeWorld, deaf: bool
) -> None:
    world.deaf = deaf
    fault = make(world, "lost-machine", ahead_s=0.0)
    await fault.setup()
    await fault.inject()
    words = "it was not cut off" if deaf else "it was cut off"
    assert words in (await fault.probe()).evidence
    await fault.heal()
    assert world.untouched, "no link stays cut"
