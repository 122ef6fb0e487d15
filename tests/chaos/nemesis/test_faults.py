"""Each fault does what it says, sees its effect, and leaves nothing behind."""

from __future__ import annotations

import pytest

from chaos.nemesis.base import FaultNotPossibleError
from chaos.nemesis.catalogue import CATALOGUE
from tests.chaos.nemesis import fakes

CASES = [
    ("partition-leader", {"clients": False}),
    ("partition-leader", {"clients": True}),
    ("partition-halves", {}),
    ("one-way-cut", {"direction": "from-leader"}),
    ("one-way-cut", {"direction": "to-leader"}),
    ("one-way-cut", {"direction": "pair"}),
    ("cut-clients", {"target": "leader"}),
    ("cut-name-servers", {}),
    ("kill", {"target": "leader"}),
    ("kill", {"target": "all"}),
    ("pause", {"target": "follower"}),
    ("slow-links", {"target": "any", "latency_ms": 100, "jitter_ms": 0, "rate_kb_s": 0}),
]
LINK_FAULTS = [case for case in CASES if case[0] not in {"kill", "pause"}]


def test_every_fault_has_a_case_here() -> None:
    assert {name for name, _ in CASES} == set(CATALOGUE)


@pytest.mark.parametrize(("name", "params"), CASES)
async def test_inject_is_seen_and_heal_is_seen(name: str, params: dict) -> None:
    world = fakes.FakeWorld()
    fault = CATALOGUE[name].make(fakes.context(world, **params))
    await fault.setup()
    assert fault.targets
    assert not world.calls, "setup only looks"
    before = await fault.probe()
    assert before.seen is not True, "no effect before the injection"
    await fault.inject()
    seen = await fault.probe()
    assert seen.seen is True
    assert seen.evidence
    assert (await fault.probe_healed()).seen is not True, "not healed before the heal"
    await fault.heal()
    assert (await fault.probe_healed()).seen is True
    assert (await fault.probe()).seen is not True
    assert not world.cuts
    assert not world.slowed
    assert set(world.states.values()) == {"S"}


@pytest.mark.parametrize(("name", "params"), [*LINK_FAULTS, ("pause", {"target": "any"})])
async def test_a_fault_without_effect_is_not_seen(name: str, params: dict) -> None:
    world = fakes.FakeWorld(deaf=True)
    fault = CATALOGUE[name].make(fakes.context(world, **params))
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is False


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("partition-leader", {"clients": False}),
        ("one-way-cut", {"direction": "to-leader"}),
        ("kill", {"target": "leader"}),
        ("pause", {"target": "follower"}),
    ],
)
async def test_without_a_leader_nothing_is_touched(name: str, params: dict) -> None:
    world = fakes.FakeWorld()
    fault = CATALOGUE[name].make(fakes.context(world, leader=None, **params))
    with pytest.raises(FaultNotPossibleError, match="has no leader"):
        await fault.setup()
    assert not world.calls


async def test_links_that_were_silent_before_prove_nothing() -> None:
    world = fakes.FakeWorld()
    for node in world.states:
        world.states[node] = "gone"
    fault = CATALOGUE["partition-leader"].make(fakes.context(world, clients=False))
    await fault.setup()
    await fault.inject()
    assert (await fault.probe()).seen is None


async def test_directions_of_the_cuts() -> None:
    world = fakes.FakeWorld()
    fault = CATALOGUE["one-way-cut"].make(fakes.context(world, direction="to-leader"))
    await fault.setup()
    assert sorted(fault.targets) == ["broker-a-n1->broker-a-n0", "broker-a-n2->broker-a-n0"]
    fault = CATALOGUE["partition-leader"].make(fakes.context(world, clients=True))
    await fault.setup()
    assert "client-0->broker-a-n0" in fault.targets
    assert "broker-a-n0->namesrv-0" in fault.targets
    assert len(fault.targets) == 8


async def test_halves_are_a_minority_and_the_rest() -> None:
    world = fakes.FakeWorld(replicas=5)
    fault = CATALOGUE["partition-halves"].make(fakes.context(world))
    await fault.setup()
    assert len(fault.targets) == 2 * 2 * 3
    alone = fakes.FakeWorld(replicas=1)
    with pytest.raises(FaultNotPossibleError, match="too few"):
        await CATALOGUE["partition-halves"].make(fakes.context(alone)).setup()
