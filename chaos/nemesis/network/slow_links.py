"""Slow links: latency, jitter, a bandwidth limit, one gray direction, bytes that come in bursts.

Place in the data path: `chaos.nemesis.network.link_fault` applies what the rows here say. A gray
link is slow one way only: its node is neither dead nor well, so detectors that see heartbeats
disagree with clients that wait for answers.

Effect: the round trip through each witness grows by a stated part of what was asked for, above what
it was before. Jitter has no mean: there the slowest of several round trips must grow. What is too
little to be told from the host's own ups and downs is unknown.

Source: Toxiproxy's latency, bandwidth and slicer toxics; "Gray Failure" (HotOS '17).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from chaos.links.base import Link, LinkEffect, LinkShape, Shaping, both_ways
from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.nemesis.network.link_fault import MEASURABLE_MS, LinkFault, Slowing, too_small

__all__ = ["SPECS"]

JITTER_PROBES: Final = 5
PROBE_BYTES_MIN: Final = 80  # a request and its answer are more, on every protocol
_TARGET: Final = {"target": ("leader", "follower", "any")}
_SLOWER: Final = (
    "the round trip through each slowed link grows by half of the latency or more; unknown where"
    " that is below 5 ms"
)


def _to_peers(context: FaultContext) -> list[Link]:
    node = context.pick(str(context.params["target"]))
    return both_ways([node], [name for name in context.members() if name != node])


def _one_way(context: FaultContext) -> list[Link]:
    node = context.pick(str(context.params["target"]))
    others = [name for name in context.members() if name != node]
    if context.params["direction"] == "from":
        return [Link(who=node, whom=name) for name in others]
    return [Link(who=name, whom=node) for name in others]


def _to_clients(context: FaultContext) -> list[Link]:
    """Return the links between a node and every client."""
    node = context.pick(str(context.params["target"]))
    return both_ways(context.world.client_slots, [node])


def _to_name_servers(context: FaultContext) -> list[Link]:
    """Return the links between a node and every name server."""
    servers = [place.name for place in context.world.layout.name_servers]
    if not servers:
        raise FaultNotPossibleError("there is no name server")
    return both_ways([context.pick(str(context.params["target"]))], servers)


def _number(context: FaultContext, name: str) -> int:
    return int(context.params.get(name, 0))


def _latency(context: FaultContext) -> LinkShape:
    return LinkShape(
        latency_ms=_number(context, "latency_ms"),
        jitter_ms=_number(context, "jitter_ms"),
        rate_kb_s=_number(context, "rate_kb_s"),
    )


def _least_ms(shape: LinkShape) -> float:
    """Return the least growth of a round trip: half of the latency, or of the time that the bytes
    of a probe take at that rate, which is 1 ms a byte at 1 KB/s."""
    of_rate = PROBE_BYTES_MIN / shape.rate_kb_s if shape.rate_kb_s else 0.0
    return max(shape.latency_ms, of_rate) / 2


def _slow_peers(context: FaultContext) -> Slowing:
    shape = _latency(context)
    return Slowing(context, _to_peers, shape=shape, least_ms=_least_ms(shape))


def _gray(context: FaultContext) -> Slowing:
    shape = _latency(context)
    return Slowing(context, _one_way, shape=shape, least_ms=_least_ms(shape))


def _slow_clients(context: FaultContext) -> Slowing:
    shape = _latency(context)
    return Slowing(context, _to_clients, shape=shape, least_ms=_least_ms(shape))


def _slow_registration(context: FaultContext) -> Slowing:
    shape = _latency(context)
    return Slowing(context, _to_name_servers, shape=shape, least_ms=_least_ms(shape))


def _bandwidth(context: FaultContext) -> Slowing:
    shape = _latency(context)
    return Slowing(context, _to_peers, shape=shape, least_ms=_least_ms(shape))


def _slices(context: FaultContext) -> Slowing:
    """The least growth: the pauses between the slices of one request."""
    delay_ms = _number(context, "delay_ms")
    size = max(1, _number(context, "slice_bytes"))
    shaping = Shaping(
        effect=LinkEffect.STREAM,
        name="slicer",
        attributes={"average_size": size, "size_variation": 0, "delay": delay_ms * 1000},
    )
    least = PROBE_BYTES_MIN / size * delay_ms / 2
    return Slowing(context, _to_peers, shape=shaping, least_ms=least)


class Jitter(LinkFault):
    """Varies the latency of the links; seen where the slowest of several round trips grows."""

    async def inject(self) -> None:
        shape = LinkShape(
            latency_ms=self._jitter_ms, jitter_ms=max(1, self._jitter_ms), rate_kb_s=0
        )
        await self._context.links.slow(self._links, shape, self._context.tag)

    async def probe(self) -> Observation:
        if self._jitter_ms / 2 < MEASURABLE_MS:
            return too_small(self._jitter_ms / 2)
        spread = await self._spread_ms()
        if spread is None:
            return Observation(seen=None, evidence="no link answered often enough")
        text = f"round trips differ by up to {spread:.0f} ms"
        return Observation(seen=spread >= self._jitter_ms / 2, evidence=text)

    async def probe_healed(self) -> Observation:
        if self._jitter_ms / 2 < MEASURABLE_MS:
            return await super().probe_healed()
        spread = await self._spread_ms()
        if spread is None:
            return Observation(seen=None, evidence="no link answered often enough")
        text = f"round trips differ by up to {spread:.0f} ms"
        return Observation(seen=spread < self._jitter_ms / 2, evidence=text)

    @property
    def _jitter_ms(self) -> int:
        return _number(self._context, "jitter_ms")

    async def _spread_ms(self) -> float | None:
        """Return the largest difference between round trips through one link."""
        trips: dict[Link, list[float]] = {}
        for _ in range(JITTER_PROBES):
            for probe in await self._context.links.probe(list(self._control), timeout_s=4.0):
                if probe.round_trip_ms is not None:
                    trips.setdefault(probe.link, [self._control[probe.link]]).append(
                        probe.round_trip_ms
                    )
        spreads = [max(each) - min(each) for each in trips.values() if len(each) > 2]
        return max(spreads, default=None)


_slow = partial(FaultSpec, probe=_SLOWER, effects=frozenset({LinkEffect.SLOW}), choices=_TARGET)

SPECS: Final[tuple[FaultSpec, ...]] = (
    _slow(
        name="slow-links",
        summary="latency and a bandwidth limit on the links between a node and its peers",
        make=_slow_peers,
        seen_elsewhere="Toxiproxy, Chaos Mesh, OpenChaos",
        parameters={"target": "leader", "latency_ms": 120, "jitter_ms": 30, "rate_kb_s": 0},
    ),
    _slow(
        name="slow-clients",
        summary="latency on the links between a node and every client",
        make=_slow_clients,
        seen_elsewhere="Toxiproxy, Chaos Mesh",
        parameters={"target": "leader", "latency_ms": 300, "jitter_ms": 50, "rate_kb_s": 0},
    ),
    _slow(
        name="slow-registration",
        summary="latency on the links between a node and every name server",
        make=_slow_registration,
        seen_elsewhere="this project",
        parameters={"target": "leader", "latency_ms": 200, "jitter_ms": 0, "rate_kb_s": 0},
    ),
    _slow(
        name="gray-slow",
        summary="one direction between a node and its peers is slow, the other is not",
        make=_gray,
        seen_elsewhere="TigerBeetle's vortex",
        parameters={"target": "leader", "direction": "from", "latency_ms": 250, "jitter_ms": 50},
        choices={**_TARGET, "direction": ("from", "to")},
    ),
    _slow(
        name="late-burst",
        summary="bytes between a node and its peers arrive seconds late, after terms have changed",
        make=_slow_peers,
        seen_elsewhere="FoundationDB, TigerBeetle's vortex",
        parameters={"target": "leader", "latency_ms": 1500, "jitter_ms": 0},
    ),
    _slow(
        name="jitter",
        summary="the latency between a node and its peers varies from 0 to twice jitter_ms",
        probe="the round trips through a link differ by half of jitter_ms or more",
        make=lambda context: Jitter(context, _to_peers),
        seen_elsewhere="Toxiproxy, Chaos Mesh",
        parameters={"target": "leader", "jitter_ms": 100},
    ),
    _slow(
        name="bandwidth-limit",
        summary="few bytes a second between a node and its peers",
        probe="the round trip through each link grows by the time that a probe's bytes take",
        make=_bandwidth,
        seen_elsewhere="Toxiproxy, Chaos Mesh",
        parameters={"target": "follower", "rate_kb_s": 2},
    ),
    _slow(
        name="sliced-streams",
        summary="bytes between a node and its peers arrive in small pieces with pauses between",
        probe="the round trip through each link grows by half of the pauses in a probe",
        effects=frozenset({LinkEffect.STREAM}),
        make=_slices,
        seen_elsewhere="Toxiproxy",
        parameters={"target": "any", "slice_bytes": 24, "delay_ms": 20},
    ),
)
