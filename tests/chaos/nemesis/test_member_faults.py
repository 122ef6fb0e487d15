"""Each fault of members and settings is seen where the group names it, and undone by its heal."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

import pytest

from chaos.cluster.layout import with_spares
from chaos.nemesis.base import Fault, FaultNotPossibleError
from chaos.nemesis.catalogue import CATALOGUE
from chaos.systems.base import SystemFailedError
from tests.chaos.nemesis import fakes

CHANGES = [
    "add-learner",
    "add-voter",
    "remove-follower",
    "remove-leader",
    "replace-member",
    "change-while-cut",
]


class Members:
    """Voters and learners of the fake group; a removed node's place is the next to be used."""

    def __init__(self, world: fakes.FakeWorld) -> None:
        self.world = world
        world.layout = with_spares(world.layout, [(10991, 10996)])
        self.voters = [place.name for place in world.layout.brokers]
        self.free = [place.name for place in world.layout.spares]
        self.learning: list[str] = []
        self.calls: list[str] = []
        self.leading = self.voters[0]
        self.deaf = False

    async def add(self, group: str, *, voter: bool) -> str:
        node = self.free.pop(0)
        self.calls.append(f"add {node}")
        self.world.states[node] = "S"
        if not self.deaf:
            (self.voters if voter else self.learning).append(node)
        return node

    async def remove(self, node: str) -> None:
        self.calls.append(f"remove {node}")
        for names in (self.voters, self.learning):
            if node in names and not self.deaf:
                names.remove(node)
        self.free.insert(0, node)

    async def promote(self, node: str) -> None: ...

    async def transfer(self, group: str, node: str) -> None:
        self.calls.append(f"transfer {node}")
        if not self.deaf:
            for each in self.voters:
                if each != node:
                    self.world.states[each] = "T"  # so that the fake's first that runs is `node`

    async def members(self, group: str) -> list[str]:
        return list(self.voters)

    async def learners(self, group: str) -> list[str]:
        return list(self.learning)


class Settings:
    def __init__(self, world: fakes.FakeWorld) -> None:
        first = {"maxTransferCountOnMessageInMemory": "1024", "timerMaxDelaySec": "259200"}
        self.values = {place.name: dict(first) for place in world.layout.brokers}
        self.next: dict[str, Mapping | None] = {}
        self.deaf = False
        restart = world.restart

        async def restarted(node: str) -> None:
            await restart(node)
            shown = self.next.get(node) or {}
            self.values[node]["timerMaxDelaySec"] = str(shown.get("timer_max_delay_sec", 259200))

        world.restart = restarted  # type: ignore[method-assign]

    async def update(self, node: str, values: Mapping[str, str]) -> None:
        if not self.deaf:
            self.values[node].update(values)

    async def read(self, node: str) -> Mapping[str, str] | None:
        return self.values[node]

    def at_next_start(self, node: str, values: Mapping | None) -> None:
        self.next[node] = values


@pytest.fixture
def world() -> fakes.FakeWorld:
    world = fakes.FakeWorld()
    world.members = Members(world)
    world.settings = Settings(world)
    return world


def make(world: fakes.FakeWorld, name: str, **params) -> Fault:
    spec = CATALOGUE[name]
    return spec.make(fakes.context(world, **{**spec.parameters, **params}))


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_is_seen_and_undone(world: fakes.FakeWorld, name: str) -> None:
    before = list(world.members.voters)
    fault = make(world, name)
    await fault.setup()
    assert fault.targets
    assert not world.members.calls, "setup only looks"
    assert (await fault.probe()).seen is False
    await fault.inject()
    assert (await fault.probe()).seen is True
    await fault.heal()
    assert (await fault.probe_healed()).seen is True
    assert sorted(world.members.voters) == before
    assert not world.members.learning
    assert not world.cuts


@pytest.mark.parametrize("name", ["add-learner", "add-voter", "remove-follower"])
async def test_a_change_that_was_not_made_is_not_seen(world: fakes.FakeWorld, name: str) -> None:
    world.members.deaf = True
    fault = make(world, name)
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is False


@pytest.mark.parametrize("name", ["add-learner", "add-voter", "change-while-cut"])
async def test_without_a_spare_place_nothing_is_added(world: fakes.FakeWorld, name: str) -> None:
    world.layout = dataclasses.replace(world.layout, spares=())
    with pytest.raises(FaultNotPossibleError, match=r"cluster\.spares = 1"):
        await make(world, name).setup()
    assert not world.members.calls


async def test_of_two_voters_none_is_removed(world: fakes.FakeWorld) -> None:
    world.members.voters.pop()
    with pytest.raises(FaultNotPossibleError, match="no member to spare"):
        await make(world, "remove-follower").setup()


@pytest.mark.parametrize("name", [*CHANGES, "transfer-leader"])
async def test_without_a_leader_nothing_is_changed(world: fakes.FakeWorld, name: str) -> None:
    fault = CATALOGUE[name].make(fakes.context(world, leader=None, **CATALOGUE[name].parameters))
    with pytest.raises(FaultNotPossibleError, match="has no leader"):
        await fault.setup()
    assert not world.members.calls


async def test_leadership_is_seen_at_the_node_that_got_it(world: fakes.FakeWorld) -> None:
    fault = make(world, "transfer-leader")
    await fault.setup()
    assert (await fault.probe()).seen is False
    await fault.inject()
    assert (await fault.probe()).seen is True
    await fault.heal()
    assert (await fault.probe_healed()).seen is True


async def test_what_became_of_a_cut_off_change_is_read_from_the_members(
    world: fakes.FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.nemesis.member.member_changes.CUT_CHANGE_S", 0.01)
    add = world.members.add

    async def done_without_an_answer(group: str, *, voter: bool) -> str:
        await add(group, voter=voter)
        raise SystemFailedError("no answer")

    world.members.add = done_without_an_answer
    fault = make(world, "change-while-cut")
    await fault.setup()
    await fault.inject()
    await asyncio.sleep(0.01)
    world.members.add = add
    await fault.heal()
    assert (await fault.probe_healed()).seen is True
    assert not world.members.learning


async def test_a_setting_is_changed_and_changed_back(world: fakes.FakeWorld) -> None:
    fault = make(world, "changed-setting")
    await fault.setup()
    (node,) = fault.targets
    assert (await fault.probe()).seen is False
    await fault.inject()
    assert world.settings.values[node]["maxTransferCountOnMessageInMemory"] == "1"
    assert (await fault.probe()).seen is True
    assert (await fault.probe_healed()).seen is False
    await fault.heal()
    assert (await fault.probe_healed()).seen is True
    world.settings.deaf = True
    await fault.inject()
    assert (await fault.probe()).seen is False
    with pytest.raises(FaultNotPossibleError, match="shows maxMessageSize = None"):
        await make(world, "changed-setting", change="small-messages").setup()


async def test_a_rolling_setting_is_on_every_node_and_gone_from_every_one(
    world: fakes.FakeWorld,
) -> None:
    fault = make(world, "rolling-setting")
    await fault.setup()
    await fault.inject()
    async with asyncio.timeout(5):
        while (await fault.probe()).seen is not True:
            await asyncio.sleep(0.01)
    assert {v["timerMaxDelaySec"] for v in world.settings.values.values()} == {"3600"}
    assert (await fault.probe_healed()).seen is False
    await fault.heal()
    assert (await fault.probe_healed()).seen is True
    assert {v["timerMaxDelaySec"] for v in world.settings.values.values()} == {"259200"}
    assert world.untouched


async def test_a_leader_without_peers_is_not_cut_off() -> None:
    world = fakes.FakeWorld(replicas=1)
    world.members = Members(world)
    fault = make(world, "change-while-cut")
    with pytest.raises(FaultNotPossibleError, match="no link to cut"):
        await fault.setup()
    assert not world.calls
