"""The base of all faults of links: chosen links, a control probe, a heal by tag.

Place in the data path: the modules beside this one differ in the links that they choose and in what
they do to them; `chaos.links` carries it out.

Invariants: a link counts as hit only where an own connection through it was answered before the
fault; links whose far side is gone are hit too but prove nothing. A fault is healed when every link
that passed before passes again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from chaos.links.base import Link, LinkEffect, LinkShape, Shaping
from chaos.nemesis.base import (
    FaultContext,
    FaultSpec,
    Observation,
    Parameter,
    control_probe,
    links_pass,
    links_silent,
)

__all__ = [
    "MEASURABLE_MS",
    "Choose",
    "LinkCut",
    "LinkFault",
    "Slowing",
    "Witnesses",
    "cut_spec",
    "too_small",
]

Choose: TypeAlias = Callable[[FaultContext], list[Link]]
Witnesses: TypeAlias = Callable[[FaultContext, Sequence[Link]], list[Link]]
WITNESSES_MAX: Final = 6
SLOW_PROBE_TIMEOUT_S: Final = 4.0
SLOW_TRIPS: Final = 5  # a connection is made and a request answered: four times the latency
MEASURABLE_MS: Final = 5.0  # round trips of a busy host differ by as much without any fault
_CUT_PROBE: Final = "connections through each cut link stay silent that were answered before"


class LinkFault(ABC):
    """A fault of some links. `choose` raises FaultNotPossibleError where there are none.

    `witnesses` picks the links to probe; by default a few of them, spread over all.
    """

    def __init__(
        self, context: FaultContext, choose: Choose, witnesses: Witnesses | None = None
    ) -> None:
        self._context = context
        self._choose = choose
        self._witnesses = witnesses or _spread
        self._links: list[Link] = []
        self._control: dict[Link, float] = {}
        self._is_healed = False

    @property
    def targets(self) -> list[str]:
        return [str(link) for link in self._links]

    async def setup(self) -> None:
        self._links = self._choose(self._context)
        witnesses = self._witnesses(self._context, self._links)
        self._control = await control_probe(self._context.world, witnesses)

    @abstractmethod
    async def inject(self) -> None: ...

    @abstractmethod
    async def probe(self) -> Observation: ...

    async def heal(self) -> None:
        await self._context.links.heal(self._context.tag)
        self._is_healed = True

    async def probe_healed(self) -> Observation:
        if not self._is_healed:  # not every effect shows on a connection of one's own
            return Observation(seen=False, evidence="the links still have the effect")
        if not self._control:
            return Observation(seen=None, evidence="no link of it passed before the fault")
        return await links_pass(self._context.world, list(self._control))


class LinkCut(LinkFault):
    """Swallows every byte of the links."""

    async def inject(self) -> None:
        await self._context.links.cut(self._links, self._context.tag)

    async def probe(self) -> Observation:
        return await links_silent(self._context.world, self._control)


class Slowing(LinkFault):
    """Slows the links; seen where the round trip through each grows by `least_ms` or more.

    A growth below `MEASURABLE_MS` can't be told from what the host does by itself: of such a fault
    it is not known whether it took effect.
    """

    def __init__(
        self,
        context: FaultContext,
        choose: Choose,
        *,
        shape: LinkShape | Shaping,
        least_ms: float,
        witnesses: Witnesses | None = None,
    ) -> None:
        super().__init__(context, choose, witnesses)
        self._shape = shape
        self._least_ms = least_ms
        latency_ms = shape.latency_ms if isinstance(shape, LinkShape) else 0
        self._timeout_s = max(SLOW_PROBE_TIMEOUT_S, SLOW_TRIPS * latency_ms / 1000)

    async def inject(self) -> None:
        if isinstance(self._shape, LinkShape):
            await self._context.links.slow(self._links, self._shape, self._context.tag)
        else:
            await self._context.links.shape(self._links, self._shape, self._context.tag)

    async def probe(self) -> Observation:
        if self._least_ms < MEASURABLE_MS:
            return too_small(self._least_ms)
        slower = await self._growth()
        if not slower:
            return Observation(seen=None, evidence="no link could be measured before and after")
        seen = all(grown >= self._least_ms for grown in slower.values())
        return Observation(seen=seen, evidence=_grown(slower))

    async def probe_healed(self) -> Observation:
        if self._least_ms < MEASURABLE_MS:
            return await super().probe_healed()
        slower = await self._growth()
        if not self._control or len(slower) < len(self._control):
            return Observation(seen=None, evidence="not every link answered")
        seen = all(grown < self._least_ms for grown in slower.values())
        return Observation(seen=seen, evidence=_grown(slower))

    async def _growth(self) -> dict[Link, float]:
        probes = await self._context.links.probe(list(self._control), timeout_s=self._timeout_s)
        return {
            probe.link: probe.round_trip_ms - self._control[probe.link]
            for probe in probes
            if probe.round_trip_ms is not None
        }


def too_small(least_ms: float) -> Observation:
    """Return what a probe says of an effect that it can't measure."""
    text = f"it would show by {least_ms:.3g} ms, and less than {MEASURABLE_MS:g} ms prove nothing"
    return Observation(seen=None, evidence=text, final=True)


def cut_spec(
    name: str,
    summary: str,
    choose: Choose,
    *,
    witnesses: Witnesses | None = None,
    seen_elsewhere: str,
    parameters: Mapping[str, Parameter] | None = None,
    choices: Mapping[str, tuple[str, ...]] | None = None,
    beyond_majority: bool = False,
) -> FaultSpec:
    """Return the row of a fault that cuts the links of `choose`."""
    return FaultSpec(
        name=name,
        summary=summary,
        probe=_CUT_PROBE,
        effects=frozenset({LinkEffect.CUT}),
        make=lambda context: LinkCut(context, choose, witnesses),
        seen_elsewhere=seen_elsewhere,
        parameters=parameters or {},
        choices=choices or {},
        beyond_majority=beyond_majority,
    )


def _spread(_context: FaultContext, links: Sequence[Link]) -> list[Link]:
    """Return at most `WITNESSES_MAX` links, evenly spread."""
    step = max(1, -(-len(links) // WITNESSES_MAX))
    return list(links[::step])


def _grown(slower: Mapping[Link, float]) -> str:
    return "; ".join(f"{link}: +{grown:.0f} ms" for link, grown in slower.items())
