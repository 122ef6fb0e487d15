"""Faults at failpoints, of disks, power and clocks: done, seen, and nothing of them left behind."""

from __future__ import annotations

import asyncio

import pytest

from chaos.nemesis.base import Fault, FaultNotPossibleError
from chaos.nemesis.catalogue import CATALOGUE
from chaos.nemesis.failpoint import armed_points, power_failures, wrong_clocks
from chaos.systems.base import PointAction, PointCounts, SystemFailedError
from tests.chaos.nemesis import fakes

ARMED = [spec.name for spec in armed_points.SPECS]
POWER = [spec.name for spec in power_failures.SPECS]
CLOCKS = [spec.name for spec in wrong_clocks.SPECS]
ENDING = {"crash", "error"}
ALL_ACTIONS = frozenset({"crash", "delay", "stuck", "error", "lie", "short"})
LEADER = "broker-a-n0"


class FakeFailpoints:
    """`deaf`: what is armed never fires. `mute`: nobody answers once something is armed.
    `ends_in_s`: a process that failed answers for so long, and then ends."""

    def __init__(
        self, world: fakes.FakeWorld, *, deaf: bool, mute: bool = False, ends_in_s: float = 0.0
    ) -> None:
        self._world = world
        self._deaf = deaf
        self._mute = mute
        self._ends_in_s = ends_in_s
        self.armed: dict[str, tuple[str, PointAction]] = {}
        self._fired: dict[tuple[str, str], int] = {}

    async def arm(self, node: str, point: str, action: PointAction) -> None:
        self.armed[node] = point, action
        if self._deaf:
            return
        self._fired[node, point] = 1
        if action.action in ENDING and self._ends_in_s:
            loop = asyncio.get_running_loop()
            loop.call_later(self._ends_in_s, self._world.states.__setitem__, node, "gone")
        elif action.action in ENDING:
            self._world.states[node] = "gone"
            del self.armed[node]

    async def disarm(self, node: str, point: str) -> None:
        if self._mute:
            raise SystemFailedError(f"{node} does not answer")
        armed, _ = self.armed.pop(node)
        assert armed == point

    async def counts(self, node: str) -> dict[str, PointCounts] | None:
        if self._world.states[node] != "S" or (self._mute and node in self.armed):
            return None
        names = [*armed_points.COMMON_POINTS, "disk.write", "disk.fsync"]
        return {
            name: PointCounts(
                reached=9,
                fired=self._fired.get((node, name), 0),
                waiting=0,
                actions=ALL_ACTIONS,
            )
            for name in names
        }


class FakeClocks:
    def __init__(self, *, deaf: bool) -> None:
        self._deaf = deaf
        self.off: dict[str, int] = {}

    async def put(
        self, node: str, *, offset_ms: int, drift_ppm: int = 0, strobe_ms: int = 0
    ) -> None:
        self.off[node] = 0 if self._deaf else offset_ms + drift_ppm

    async def offset_ms(self, node: str) -> int | None:
        return self.off.get(node, 0)


class FakeStores:
    def __init__(self, world: fakes.FakeWorld, *, deaf: bool) -> None:
        self._world = world
        self._deaf = deaf
        self.lost: list[str] = []

    async def lose_unsynced(self, node: str) -> str | None:
        assert self._world.states[node] == "gone", "a store in use is not touched"
        self.lost.append(node)
        return None if self._deaf else f"{node} lost 3 changes"


def a_world(*, deaf: bool = False, mute: bool = False) -> fakes.FakeWorld:
    world = fakes.FakeWorld()
    world.failpoints = FakeFailpoints(world, deaf=deaf, mute=mute)
    world.clocks = FakeClocks(deaf=deaf)
    world.stores = FakeStores(world, deaf=deaf)
    return world


def make(world: fakes.FakeWorld, name: str, **params) -> Fault:
    spec = CATALOGUE[name]
    return spec.make(fakes.context(world, **{**spec.parameters, **params}))


@pytest.mark.parametrize("name", [*ARMED, *POWER, *CLOCKS])
async def test_inject_is_seen_and_heal_is_seen(name: str) -> None:
    world = a_world()
    fault = make(world, name)
    await fault.setup()
    assert fault.targets
    assert not world.calls
    assert (await fault.probe()).seen is not True, "no effect before the injection"
    await fault.inject()
    assert (await fault.probe()).seen is True
    await fault.heal()
    assert (await fault.probe_healed()).seen is True
    assert not world.failpoints.armed
    assert not any(world.clocks.off.values())
    assert set(world.states.values()) == {"S"}


async def test_a_node_that_ends_while_it_is_healed_is_started_again() -> None:
    world = a_world()
    world.failpoints = FakeFailpoints(world, deaf=False, ends_in_s=0.1)
    fault = make(world, "disk-write-error")
    await fault.setup()
    await fault.inject()
    await fault.heal()
    assert f"restart {LEADER}" in world.calls
    assert (await fault.probe_healed()).seen is True


@pytest.mark.parametrize("name", [*ARMED, *CLOCKS])
async def test_what_had_no_effect_is_not_seen(name: str) -> None:
    world = a_world(deaf=True)
    fault = make(world, name)
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is False
    await fault.heal()
    assert not world.failpoints.armed


@pytest.mark.parametrize("state", ["gone", "T"])
@pytest.mark.parametrize("name", ["fsync-lies", "fsync-slow", "fsync-stuck", "failpoint-delay"])
async def test_what_another_fault_did_to_the_node_is_no_effect(name: str, state: str) -> None:
    """What is armed can't end a process, nor stop one."""
    world = a_world(deaf=True)
    fault = make(world, name)
    await fault.setup()
    await fault.inject()
    world.states[LEADER] = state
    assert (await fault.probe()).seen is None


async def test_power_whose_loss_is_not_known_is_unknown() -> None:
    world = a_world(deaf=True)
    fault = make(world, "power-failure")
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is None


async def test_all_die_before_any_store_is_touched() -> None:
    world = a_world()
    fault = make(world, "power-failure-all")
    await fault.setup()
    await fault.inject()
    assert sorted(world.stores.lost) == sorted(fault.targets)
    assert len(fault.targets) == 3


async def test_a_point_that_is_not_there_is_refused() -> None:
    world = a_world()
    with pytest.raises(FaultNotPossibleError, match=r"no failpoint 'log\.melt'"):
        await make(world, "failpoint-crash", point="log.melt").setup()
    assert not world.failpoints.armed


async def test_a_node_that_hangs_in_what_was_armed_is_killed() -> None:
    world = a_world(mute=True)
    fault = make(world, "fsync-stuck")
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is True
    await fault.heal()
    assert f"kill {LEADER}" in world.calls
    assert f"restart {LEADER}" in world.calls
