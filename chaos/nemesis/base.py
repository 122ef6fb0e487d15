"""The steps of a fault: choose, inject, observe the effect, heal, observe the healing.

Place in the data path: each fault is one module beside this one; `chaos.experiment.nemesis_runner`
runs its steps and records it; `chaos.nemesis.catalogue` lists them all.

Invariants: `setup` only observes (control probes: a link that was silent before the cut proves no
cut); `heal` may be called after a failed `inject`, and again after a failed `heal`, and leaves
nothing of the fault behind; a probe returns True, False, or None where it could not observe, and
never guesses.

Source: Jepsen's nemesis protocol; "record the effect, not the intent".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

from chaos.cluster.broker_status import BrokerStatus
from chaos.links.base import Link, LinkEffect, Links, LinksError
from chaos.systems.base import (
    Clocks,
    Failpoints,
    Members,
    Part,
    Processes,
    Releases,
    Replacements,
    Settings,
    Stores,
    System,
    SystemFailedError,
)
from chaos.worlds.world import World

__all__ = [
    "FAULT_ERRORS",
    "Fault",
    "FaultContext",
    "FaultNotPossibleError",
    "FaultSpec",
    "Observation",
    "Parameter",
    "control_probe",
    "links_pass",
    "links_silent",
]

Parameter: TypeAlias = str | int | float | bool
T = TypeVar("T")


class FaultNotPossibleError(Exception):
    """The fault found no target (no leader, no live node); the text says which."""


# The errors of a step that say something of the fault and its world: they are recorded with it.
# Any other is a bug of the laboratory.
FAULT_ERRORS: Final = (FaultNotPossibleError, LinksError, SystemFailedError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of a probe. `seen` None: it could not observe. `final`: no later one says more."""

    seen: bool | None
    evidence: str
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultContext:
    """The surroundings of a fault.

    `leader`: process name of the group's leader as last seen, or None; `statuses`: last answers by
    process name; `tag` is unique to this injection.
    """

    world: World
    rng: random.Random
    group: str
    tag: str
    params: Mapping[str, Parameter]
    leader: Callable[[str], str | None]
    statuses: Callable[[], Mapping[str, BrokerStatus]]

    @property
    def links(self) -> Links:
        return self.world.links

    @property
    def system(self) -> System:
        return self.world.system

    @property
    def processes(self) -> Processes:
        """The system's processes. Raises FaultNotPossibleError, as do the parts below."""
        return _there(self.world.system.processes, Part.PROCESSES)

    @property
    def stores(self) -> Stores:
        return _there(self.world.system.stores, Part.STORES)

    @property
    def failpoints(self) -> Failpoints:
        return _there(self.world.system.failpoints, Part.FAILPOINTS)

    @property
    def clocks(self) -> Clocks:
        return _there(self.world.system.clocks, Part.CLOCKS)

    @property
    def group_members(self) -> Members:
        return _there(self.world.system.members, Part.MEMBERS)

    @property
    def replacements(self) -> Replacements:
        return _there(self.world.system.replacements, Part.REPLACEMENTS)

    @property
    def settings(self) -> Settings:
        return _there(self.world.system.settings, Part.SETTINGS)

    @property
    def releases(self) -> Releases:
        return _there(self.world.system.releases, Part.RELEASES)

    def members(self) -> list[str]:
        """Return the process names of the group's nodes, in order."""
        return [place.name for place in self.world.layout.groups[self.group]]

    def alive(self) -> list[str]:
        """Return the members whose process runs and is not stopped."""
        state = self.processes.state
        return [name for name in self.members() if state(name) not in {"gone", "T", "Z"}]

    def require_leader(self) -> str:
        leader = self.leader(self.group)
        if leader is None:
            raise FaultNotPossibleError(f"{self.group} has no leader")
        return leader

    def pick(self, target: str) -> str:
        """Pick a live node for a target of "leader", "follower" or "any"."""
        alive = self.alive()
        if target == "leader":
            return self.require_leader()
        if target == "follower":
            leader = self.require_leader()
            alive = [name for name in alive if name != leader]
        if not alive:
            raise FaultNotPossibleError(f"{self.group} has no live node to choose as {target}")
        return self.rng.choice(alive)


class Fault(Protocol):
    """One injection. The runner calls the methods in this order, each at most once but probes, and
    `heal`, which is called again where it failed.

    Methods raise FAULT_ERRORS.
    """

    @property
    def targets(self) -> list[str]:
        """Nodes or links, known after `setup`."""

    async def setup(self) -> None:
        """Choose targets and observe them. Raises FaultNotPossibleError where there is none."""

    async def inject(self) -> None: ...

    async def probe(self) -> Observation:
        """Observe whether the fault has taken effect."""

    async def heal(self) -> None: ...

    async def probe_healed(self) -> Observation:
        """Observe whether the fault is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """A row of `ledgermq chaos faults`.

    `parts`, `effects`: what the fault needs of a system and of its links; it runs in every world
    that has them. `seen_elsewhere`: who else has such a fault. `parameters`: name = default, which
    gives the type too; `choices`: the values allowed for a text parameter. `beyond_majority`: by
    design it may leave a group without an untouched majority. `effect_timeout_s`: how long its
    effect may take where that is longer than usual. `roves`: it hits one node at a time, whichever,
    of all its targets.
    """

    name: str
    summary: str
    probe: str
    make: Callable[[FaultContext], Fault]
    parts: frozenset[Part] = frozenset()
    effects: frozenset[LinkEffect] = frozenset()
    seen_elsewhere: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    beyond_majority: bool = False
    effect_timeout_s: float = 0.0
    roves: bool = False

    @property
    def needs(self) -> str:
        """The needs in words, for people."""
        effects = [f"links that can be changed: {each.value}" for each in self.effects]
        return ", ".join(sorted([*(part.value for part in self.parts), *effects])) or "nothing"

    def missing_in(self, parts: frozenset[Part], effects: frozenset[LinkEffect]) -> str | None:
        """Return what a world of these parts and effects lacks for the fault; None: nothing."""
        lacking = [part.value for part in self.parts - parts]
        lacking += [f"links that can be changed: {each.value}" for each in self.effects - effects]
        return ", ".join(sorted(lacking)) or None


async def control_probe(world: World, links: Sequence[Link]) -> dict[Link, float]:
    """Return the round trip of each link that passes now: only these can later prove a cut."""
    return {
        probe.link: probe.round_trip_ms or 0.0
        for probe in await world.links.probe(links)
        if probe.passes
    }


async def links_silent(world: World, control: Mapping[Link, float]) -> Observation:
    """Observe whether every link that passed before is silent now."""
    if not control:
        return Observation(seen=None, evidence="no link of it passed before the fault")
    probes = await world.links.probe(list(control))
    text = "; ".join(
        f"{probe.link}: {probe.evidence} (before: answer in {control[probe.link]:.0f} ms)"
        for probe in probes
    )
    if any(probe.passes for probe in probes):
        return Observation(seen=False, evidence=text)
    if any(probe.passes is None for probe in probes):
        return Observation(seen=None, evidence=text)
    return Observation(seen=True, evidence=text)


async def links_pass(world: World, links: Sequence[Link]) -> Observation:
    """Observe whether every link passes."""
    probes = await world.links.probe(links)
    text = "; ".join(f"{probe.link}: {probe.evidence}" for probe in probes)
    if all(probe.passes for probe in probes):
        return Observation(seen=True, evidence=text)
    if any(probe.passes is False for probe in probes):
        return Observation(seen=False, evidence=text)
    return Observation(seen=None, evidence=text)


def _there(part: T | None, kind: Part) -> T:
    if part is None:
        raise FaultNotPossibleError(f"the system under test has no {kind.value}")
    return part
