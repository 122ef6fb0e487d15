"""The steps of a fault: choose, inject, observe the effect, heal, observe the healing.

Place in the data path: each fault is one module beside this one; `chaos.experiment.nemesis_runner`
runs its steps and records it; `chaos.nemesis.catalogue` lists them all.

Invariants: `setup` only observes (control probes: a link that was silent before the cut proves no
cut); `heal` may be called after a failed `inject` and leaves nothing of the fault behind; a probe
returns True, False, or None where it could not observe, and never guesses.

Source: Jepsen's nemesis protocol; "record the effect, not the intent".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from chaos.cluster.broker_status import BrokerStatus
from chaos.worlds.base import Link, World, WorldError

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


class FaultNotPossibleError(Exception):
    """The fault found no target (no leader, no live node); the text says which."""


# The errors of a step that say something of the fault and its world: they are recorded with it.
# Any other is a bug of the laboratory.
FAULT_ERRORS: Final = (FaultNotPossibleError, WorldError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of a probe. `seen` None: it could not observe."""

    seen: bool | None
    evidence: str


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

    def members(self) -> list[str]:
        """Return the process names of the group's nodes, in order."""
        return [place.name for place in self.world.layout.groups[self.group]]

    def alive(self) -> list[str]:
        """Return the members whose process runs and is not stopped."""
        state = self.world.process_state
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
    """One injection. The runner calls the methods in this order, each at most once but probes.

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

    `parameters`: name = default, which gives the type too; `choices`: the values allowed for a text
    parameter.
    """

    name: str
    summary: str
    worlds: tuple[str, ...]
    needs: str
    probe: str
    make: Callable[[FaultContext], Fault]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


async def control_probe(world: World, links: Sequence[Link]) -> dict[Link, float]:
    """Return the round trip of each link that passes now: only these can later prove a cut."""
    return {
        probe.link: probe.round_trip_ms or 0.0 for probe in await world.probe(links) if probe.passes
    }


async def links_silent(world: World, control: Mapping[Link, float]) -> Observation:
    """Observe whether every link that passed before is silent now."""
    if not control:
        return Observation(seen=None, evidence="no link of it passed before the fault")
    probes = await world.probe(list(control))
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
    probes = await world.probe(links)
    text = "; ".join(f"{probe.link}: {probe.evidence}" for probe in probes)
    if all(probe.passes for probe in probes):
        return Observation(seen=True, evidence=text)
    if any(probe.passes is False for probe in probes):
        return Observation(seen=False, evidence=text)
    return Observation(seen=None, evidence=text)
