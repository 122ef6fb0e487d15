"""What a proxy does to streams: resets, a limit of bytes, late closes, half-open connections.

Place in the data path: `chaos.links` applies a stream effect (`chaos.links.base.Shaping`) to the
links that are chosen here; a real network does the same at a firewall that forgets its table, a NAT
that times out, a peer whose machine is gone.

Invariants: as `chaos.nemesis.network.link_fault`. An effect that the laboratory's own bytes do not
reach (a limit above them) is not guessed: it is None.

Source: Toxiproxy's reset_peer, limit_data and slow_close; RFC 9293 section 3.5.1 (half-open).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from chaos.links.base import Link, LinkEffect, OpenLink, Shaping, both_ways
from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.nemesis.network.link_fault import (
    MEASURABLE_MS,
    WITNESSES_MAX,
    Choose,
    LinkFault,
    too_small,
)

__all__ = ["SPECS", "HalfOpen"]

PROBE_BYTES_MIN: Final = 30  # a request is more, on every protocol
CLOSE_PROBE_TIMEOUT_S: Final = 4.0
_TARGET: Final = {"target": ("leader", "follower", "any")}


def _between_peers(context: FaultContext) -> list[Link]:
    node = context.pick(str(context.params["target"]))
    return both_ways([node], [name for name in context.members() if name != node])


def _with_clients(context: FaultContext) -> list[Link]:
    if not context.world.client_slots:
        raise FaultNotPossibleError("no client dials through links here")
    node = context.pick(str(context.params["target"]))
    return both_ways(context.world.client_slots, [node])


class StreamFault(LinkFault):
    """Applies one stream effect. `unseen`: why a probe could not reach it, or None."""

    def __init__(
        self,
        context: FaultContext,
        choose: Choose,
        name: str,
        attributes: Mapping[str, int],
        *,
        unseen: str | None = None,
    ) -> None:
        super().__init__(context, choose)
        self._shaping = Shaping(effect=LinkEffect.STREAM, name=name, attributes=attributes)
        self._unseen = unseen

    async def inject(self) -> None:
        await self._context.links.shape(self._links, self._shaping, self._context.tag)

    async def probe(self) -> Observation:
        """Observe whether no own connection is answered any more."""
        if self._unseen is not None:
            return Observation(seen=None, evidence=self._unseen)
        if not self._control:
            return Observation(seen=None, evidence="no link of it passed before the fault")
        probes = await self._context.links.probe(list(self._control))
        text = "; ".join(f"{probe.link}: {probe.evidence}" for probe in probes)
        if any(probe.passes for probe in probes):
            return Observation(seen=False, evidence=text)
        return Observation(
            seen=None if any(probe.passes is None for probe in probes) else True, evidence=text
        )


class LateClose(StreamFault):
    """Delays the end of connections; seen where an own one is closed that much later."""

    async def setup(self) -> None:
        await super().setup()
        self._control = await self._closes()

    async def probe(self) -> Observation:
        if self._least_ms < MEASURABLE_MS:
            return too_small(self._least_ms)
        return await self._compare(later=True)

    async def probe_healed(self) -> Observation:
        if self._least_ms < MEASURABLE_MS:
            return await super().probe_healed()
        return await self._compare(later=False)

    async def _compare(self, *, later: bool) -> Observation:
        now = await self._closes()
        grown = {link: now[link] - before for link, before in self._control.items() if link in now}
        if not grown or len(grown) < len(self._control):
            return Observation(seen=None, evidence="not every connection was closed in time")
        text = "; ".join(f"{link}: closed {ms:.0f} ms later" for link, ms in grown.items())
        seen = all((ms >= self._least_ms) is later for ms in grown.values())
        return Observation(seen=seen, evidence=text)

    @property
    def _least_ms(self) -> float:
        return int(self._context.params["delay_ms"]) / 2

    async def _closes(self) -> dict[Link, float]:
        """Return how long the far side's close took to arrive, by link."""
        probes = await self._context.links.probe(
            self._links[:WITNESSES_MAX], timeout_s=CLOSE_PROBE_TIMEOUT_S, until_closed=True
        )
        return {p.link: p.round_trip_ms for p in probes if p.round_trip_ms is not None}


class HalfOpen(LinkFault):
    """Silences the connections that are open, or only those that are made from now on."""

    def __init__(self, context: FaultContext, *, new: bool, shaping: Shaping | None = None) -> None:
        """`shaping`: what silences them; None: the proxy's own effect."""
        super().__init__(context, _with_clients)
        self._new = new
        self._shaping = shaping or Shaping(
            effect=LinkEffect.STREAM, name="half_open", attributes={"new": int(new)}
        )
        self._held: list[tuple[Link, OpenLink]] = []

    async def setup(self) -> None:
        await super().setup()
        node = next(iter(self._control), None)
        if node is not None:
            for link in [each for each in self._control if each.who in self._slots()][:2]:
                self._held.append((link, await self._context.links.open(link)))

    async def inject(self) -> None:
        await self._context.links.shape(self._links, self._shaping, self._context.tag)

    async def probe(self) -> Observation:
        if not self._held:
            return Observation(seen=None, evidence="no client's link passed before the fault")
        old = [await held.passes() for _, held in self._held]
        probes = await self._context.links.probe([link for link, _ in self._held])
        fresh = [probe.passes for probe in probes]
        text = "; ".join(
            f"{link}: open connection {_words(was)}, new one {_words(now)}"
            for (link, _), was, now in zip(self._held, old, fresh, strict=True)
        )
        silent, passing = (fresh, old) if self._new else (old, fresh)
        if None in silent or None in passing:
            return Observation(seen=None, evidence=text)
        return Observation(seen=not any(silent) and all(passing), evidence=text)

    async def heal(self) -> None:
        try:
            await super().heal()
        finally:
            for _, held in self._held:
                await held.close()

    def _slots(self) -> set[str]:
        return set(self._context.world.client_slots)


def _words(passes: bool | None) -> str:
    return {True: "answers", False: "is silent", None: "can't be judged"}[passes]


def _reset(context: FaultContext) -> StreamFault:
    return StreamFault(context, _between_peers, "reset_peer", {"timeout": 0})


def _reset_clients(context: FaultContext) -> StreamFault:
    return StreamFault(context, _with_clients, "reset_peer", {"timeout": 0})


def _limit(context: FaultContext) -> StreamFault:
    size = int(context.params["bytes"])
    unseen = None
    if size >= PROBE_BYTES_MIN:
        unseen = f"a connection's first {size} bytes pass, and a probe sends fewer"
    return StreamFault(context, _between_peers, "limit_data", {"bytes": size}, unseen=unseen)


def _late_close(context: FaultContext) -> LateClose:
    delay = int(context.params["delay_ms"])
    return LateClose(context, _between_peers, "slow_close", {"delay": delay})


_stream_fault = partial(
    FaultSpec,
    effects=frozenset({LinkEffect.STREAM}),
    seen_elsewhere="Toxiproxy",
    parameters={"target": "leader"},
    choices=_TARGET,
)

SPECS: Final[tuple[FaultSpec, ...]] = (
    _stream_fault(
        name="reset-connections",
        summary="every connection between a node and its peers is reset at its first byte",
        probe="own connections that were answered before end with a reset",
        make=_reset,
    ),
    _stream_fault(
        name="reset-clients",
        summary="every connection between a node and the clients is reset at its first byte",
        probe="own connections that were answered before end with a reset",
        make=_reset_clients,
    ),
    _stream_fault(
        name="limited-bytes",
        summary="connections between a node and its peers close after so many bytes",
        probe="own connections are closed before their answer; unknown where bytes is above 29",
        make=_limit,
        parameters={"target": "leader", "bytes": 20},
    ),
    _stream_fault(
        name="slow-close",
        summary="the end of a connection between a node and its peers arrives late",
        probe="connections that the far side closes are closed by half of delay_ms later",
        make=_late_close,
        parameters={"target": "any", "delay_ms": 800},
    ),
    _stream_fault(
        name="half-open",
        summary="clients' connections to a node that are open go silent; new ones pass",
        probe="a connection made before stays silent, and one made now is answered",
        make=lambda context: HalfOpen(context, new=False),
        seen_elsewhere="TigerBeetle's vortex",
    ),
    _stream_fault(
        name="half-open-new",
        summary="clients' new connections to a node are accepted and silent; open ones go on",
        probe="a connection made before is answered, and one made now stays silent",
        make=lambda context: HalfOpen(context, new=True),
        seen_elsewhere="this project",
    ),
)
