"""Each fault of links and processes does what it says, is seen, and leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from chaos.nemesis.base import Fault, FaultNotPossibleError, Observation
from chaos.nemesis.catalogue import CATALOGUE
from chaos.systems.base import Part
from tests.chaos.nemesis import fakes

# Parameters other than the defaults; a fault that is named alone has its defaults.
CASES = [
    ("partition-leader", {}),
    ("partition-leader", {"clients": True}),
    ("partition-halves", {}),
    ("partition-third", {}),
    ("partition-leader-in-majority", {}),
    ("partition-leader-in-minority", {}),
    ("partition-ring", {}),
    ("partition-bridge", {}),
    ("partition-all", {}),
    ("isolate-node", {}),
    ("one-way-cut", {}),
    ("one-way-cut", {"direction": "to-leader"}),
    ("one-way-cut", {"direction": "pair"}),
    ("cut-clients", {}),
    ("cut-one-client", {}),
    ("cut-name-servers", {}),
    ("cut-one-name-server", {}),
    ("cut-registration", {}),
    ("flapping-links", {"period_ms": 40}),
    ("swizzled-cuts", {"step_ms": 20}),
    ("swizzled-cuts", {"step_ms": 20, "nodes": "all"}),
    ("slow-links", {"target": "any", "latency_ms": 100, "jitter_ms": 0}),
    ("slow-clients", {"jitter_ms": 0}),
    ("slow-registration", {}),
    ("gray-slow", {"jitter_ms": 0}),
    ("gray-slow", {"jitter_ms": 0, "direction": "to"}),
    ("late-burst", {}),
    ("jitter", {}),
    ("bandwidth-limit", {}),
    ("sliced-streams", {}),
    ("reset-connections", {}),
    ("reset-clients", {}),
    ("limited-bytes", {}),
    ("slow-close", {}),
    ("half-open", {}),
    ("half-open-new", {}),
    ("packet-loss", {}),
    ("half-open-syn", {}),
    ("drop-frames", {}),
    ("delay-frames", {}),
    ("duplicate-frames", {"stream": "requests"}),
    ("reorder-frames", {"codes": "all"}),
    ("damage-frames", {}),
    ("kill", {}),
    ("kill", {"target": "all"}),
    ("kill-minority", {}),
    ("kill-majority", {}),
    ("kill-all", {}),
    ("terminate", {}),
    ("kill-name-server", {}),
    ("kill-name-servers", {}),
    ("pause", {"target": "follower"}),
    ("pause-minority", {}),
    ("pause-majority", {}),
    ("pause-in-turns", {"pause_ms": 20}),
    ("pause-name-servers", {}),
    ("cpu-starved", {"period_ms": 50}),
    ("restart-storm", {"pause_ms": 1}),
    ("kill-in-recovery", {}),
    ("rolling-restart", {}),
    ("chase-leader", {}),
]
PROCESS_FAULTS = {name for name, spec in CATALOGUE.items() if spec.parts and not spec.effects}
LINK_FAULTS = [case for case in CASES if case[0] not in PROCESS_FAULTS]
PAUSES = [case for case in CASES if case[0].startswith("pause") or case[0] == "cpu-starved"]
# In the modules of their own beside this one; limits of processes by the drill every_fault.
ELSEWHERE = {name for name, spec in CATALOGUE.items() if spec.parts - {Part.PROCESSES}}


def make(world: fakes.FakeWorld, name: str, params: dict, **more) -> Fault:
    spec = CATALOGUE[name]
    return spec.make(fakes.context(world, **more, **{**spec.parameters, **params}))


async def await_effect(fault: Fault, timeout_s: float = 5.0) -> Observation:
    async with asyncio.timeout(timeout_s):
        while (observation := await fault.probe()).seen is not True:
            await asyncio.sleep(0.01)
    return observation


def a_world(name: str, *, deaf: bool = False) -> fakes.FakeWorld:
    """A world in which the fault is possible."""
    world = fakes.FakeWorld(replicas=5 if name == "partition-ring" else 3, deaf=deaf)
    if name == "kill-in-recovery":
        world.phases = {node: ["recovering"] * 2 for node in world.states}
    return world


def test_every_fault_has_a_case() -> None:
    assert {name for name, _ in CASES} | ELSEWHERE == set(CATALOGUE)


@pytest.mark.parametrize(("name", "params"), CASES)
async def test_inject_is_seen_and_heal_is_seen(name: str, params: dict) -> None:
    world = a_world(name)
    fault = make(world, name, params)
    await fault.setup()
    assert fault.targets
    assert not world.calls, "setup only looks"
    before = await fault.probe()
    assert before.seen is not True, "no effect before the injection"
    await fault.inject()
    assert (await await_effect(fault)).evidence
    if name not in {"restart-storm", "rolling-restart", "kill-in-recovery"}:  # back by themselves
        assert (await fault.probe_healed()).seen is not True, "not healed before the heal"
    await fault.heal()
    assert (await fault.probe_healed()).seen is True
    assert world.untouched


@pytest.mark.parametrize(("name", "params"), [*LINK_FAULTS, *PAUSES])
async def test_a_fault_without_effect_is_not_seen(name: str, params: dict) -> None:
    world = a_world(name, deaf=True)
    fault = make(world, name, params)
    await fault.setup()
    await fault.inject()
    await asyncio.sleep(0.1 if name in {"flapping-links", "pause-in-turns", "cpu-starved"} else 0)
    assert (await fault.probe()).seen is False
    await fault.heal()


@pytest.mark.parametrize(
    ("name", "params"),
    [
        case
        for case in CASES
        if {"leader", "follower"} & {str(value) for value in CATALOGUE[case[0]].parameters.values()}
        and case[1].get("target", "leader") in {"leader", "follower"}
    ]
    + [("partition-leader", {}), ("one-way-cut", {}), ("chase-leader", {}), ("pause-in-turns", {})],
)
async def test_without_a_leader_nothing_is_touched(name: str, params: dict) -> None:
    world = a_world(name)
    fault = make(world, name, params, leader=None)
    with pytest.raises(FaultNotPossibleError, match="has no leader"):
        await fault.setup()
    assert not world.calls


async def test_links_that_were_silent_before_prove_nothing() -> None:
    world = fakes.FakeWorld()
    for node in world.states:
        world.states[node] = "gone"
    fault = make(world, "partition-leader", {}, leader="broker-a-n0")
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is None


async def _targets(name: str, *, replicas: int = 3, **params) -> list[str]:
    fault = make(fakes.FakeWorld(replicas=replicas), name, params)
    await fault.setup()
    return fault.targets


async def test_directions_of_the_cuts() -> None:
    targets = await _targets("one-way-cut", direction="to-leader")
    assert sorted(targets) == ["broker-a-n1->broker-a-n0", "broker-a-n2->broker-a-n0"]
    targets = await _targets("partition-leader", clients=True)
    assert "client-0->broker-a-n0" in targets
    assert "broker-a-n0->namesrv-0" in targets
    assert len(targets) == 8
    assert all(t.startswith("broker-a-n0->") for t in await _targets("gray-slow"))


async def test_halves_are_a_minority_and_the_rest() -> None:
    assert len(await _targets("partition-halves", replicas=5)) == 2 * 2 * 3
    with pytest.raises(FaultNotPossibleError, match="too few"):
        await _targets("partition-halves", replicas=1)


async def test_the_leader_is_on_the_side_that_the_name_says() -> None:
    with_leader = await _targets("partition-leader-in-minority", replicas=5)
    assert len({t.partition("->")[0] for t in with_leader if "n0->" in t}) == 1
    assert sum("n0" in t for t in with_leader) == 2 * 3, "cut off from a majority"
    without = await _targets("partition-leader-in-majority", replicas=5)
    assert sum("n0" in t for t in without) == 2 * 2, "cut off from a minority"


@pytest.mark.parametrize("replicas", [4, 5, 6, 7])
async def test_in_a_ring_each_node_sees_a_majority_of_its_own(replicas: int) -> None:
    cut = {tuple(t.split("->")) for t in await _targets("partition-ring", replicas=replicas)}
    nodes = [f"broker-a-n{i}" for i in range(replicas)]
    views = [frozenset(other for other in nodes if (node, other) not in cut) for node in nodes]
    assert all(len(view) > replicas / 2 for view in views)
    assert len(set(views)) == replicas
    with pytest.raises(FaultNotPossibleError, match="a ring needs 4"):
        await _targets("partition-ring", replicas=3)


async def test_around_a_bridge_one_node_sees_all() -> None:
    cut = {tuple(t.split("->")) for t in await _targets("partition-bridge", replicas=5)}
    touched = {node for pair in cut for node in pair}
    assert len(touched) == 4
    assert len(cut) == 2 * 2 * 2


async def test_a_limit_that_a_probe_does_not_reach_is_not_judged() -> None:
    fault = make(fakes.FakeWorld(), "limited-bytes", {"bytes": 5000})
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is None


async def test_one_node_is_down_at_a_time_while_leaders_are_chased() -> None:
    world = fakes.FakeWorld()
    down: list[int] = []
    kill = world.kill

    async def counted(node: str) -> None:
        await kill(node)
        down.append(sum(state == "gone" for state in world.states.values()))

    world.kill = counted  # type: ignore[method-assign]
    fault = make(world, "chase-leader", {})
    await fault.setup()
    await fault.inject()
    await await_effect(fault)
    await fault.heal()
    assert set(down) == {1}


async def test_what_a_campaign_raises_is_raised_by_its_probe() -> None:
    world = fakes.FakeWorld()
    world.break_down("kill")
    fault = make(world, "restart-storm", {})
    await fault.setup()
    await fault.inject()
    with pytest.raises(Exception, match="kill does not work here"):
        await await_effect(fault)
    await fault.heal()


async def test_without_enough_live_nodes_no_majority_is_killed() -> None:
    world = fakes.FakeWorld()
    world.states |= {"broker-a-n1": "gone", "broker-a-n2": "gone"}
    with pytest.raises(FaultNotPossibleError, match="1 live nodes of 3"):
        await make(world, "kill-majority", {}).setup()
    assert not world.calls


async def test_a_limit_needs_a_process_of_this_host() -> None:
    with pytest.raises(FaultNotPossibleError, match="no process of this host"):
        await make(fakes.FakeWorld(), "out-of-memory", {}).setup()


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("slow-links", {"latency_ms": 0, "jitter_ms": 0}),
        ("slow-links", {"latency_ms": 0, "jitter_ms": 0, "rate_kb_s": 1000}),
        ("gray-slow", {"latency_ms": 4, "jitter_ms": 0}),
        ("jitter", {"jitter_ms": 0}),
        ("bandwidth-limit", {"rate_kb_s": 0}),
        ("bandwidth-limit", {"rate_kb_s": 5_000}),
        ("sliced-streams", {"delay_ms": 0}),
        ("slow-close", {"delay_ms": 0}),
        ("packet-loss", {"percent": 0}),
        ("restart-storm", {"rounds": 0}),
        ("kill-in-recovery", {"rounds": 0}),
    ],
)
async def test_what_changes_nothing_that_can_be_seen_is_not_taken(name: str, params: dict) -> None:
    world = fakes.FakeWorld(deaf=True)
    fault = make(world, name, params)
    await fault.setup()
    await fault.inject()
    for _ in range(5):
        assert (await fault.probe()).seen is not True
        await asyncio.sleep(0.01)
    await fault.heal()
    assert (await fault.probe_healed()).seen is True


async def test_a_limit_of_bytes_is_seen_without_a_latency() -> None:
    world = fakes.FakeWorld()
    fault = make(world, "slow-links", {"latency_ms": 0, "jitter_ms": 0, "rate_kb_s": 2})
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is True
    await fault.heal()
    assert (await fault.probe_healed()).seen is True


# Faults that need more than processes have modules of their own beside this one.
@pytest.mark.parametrize(
    "name", sorted(name for name, spec in CATALOGUE.items() if not spec.parts - {Part.PROCESSES})
)
async def test_a_group_of_one_node_is_no_bug(name: str) -> None:
    spec = CATALOGUE[name]
    for params in ({}, *({key: c} for key, of in spec.choices.items() for c in of)):
        world = fakes.FakeWorld(replicas=1)
        fault = make(world, name, params)
        try:
            await fault.setup()
        except FaultNotPossibleError:
            continue
        await fault.inject()
        await fault.probe()
        await fault.heal()
