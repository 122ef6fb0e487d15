"""A world of a few nodes without processes: what a fault does to it is what a test sees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.layout import fixed_ports, lay_out
from chaos.links.base import (
    FrameHits,
    Link,
    LinkEffect,
    LinkProbe,
    LinksError,
    LinkShape,
    PacketCount,
    Shaping,
)
from chaos.nemesis.base import FaultContext
from chaos.systems.base import Part, SystemFailedError

ENDS = {"reset_peer", "limit_data"}  # shapings after which no connection is answered
GROUP = "broker-a"


def status(
    node: str,
    *,
    role: str = "follower",
    term: int = 1,
    leader: str | None = "n0",
    first_index: int = 1,
    phase: str = "serving",
):
    return BrokerStatus(
        group=GROUP,
        node=node,
        pid=1,
        address="127.0.0.1:1",
        role=role,
        term=term,
        leader=leader,
        ready=role == "leader",
        first_index=first_index,
        last_index=5,
        commit_index=5,
        applied_index=5,
        phase=phase,
    )


class FakeOpenLink:
    def __init__(self, world: FakeWorld, link: Link) -> None:
        self._world, self._link = world, link
        self.closed = False
        world.open_links.append(self)

    async def passes(self) -> bool | None:
        return not self._world.is_silent(self._link, is_new=False)

    async def close(self) -> None:
        self.closed = True


class FakeWorld:
    """`deaf`: cuts and delays are accepted and have no effect, so no fault may count as taken.

    The leader is the first node that runs.
    """

    name = "fake"
    version = "0"
    dedupes = True
    run = Path("/nowhere")
    client_slots = ("client-0",)
    effects = frozenset(LinkEffect)
    failpoints = clocks = None

    def __init__(self, *, replicas: int = 3, deaf: bool = False) -> None:
        ports = fixed_ports(
            groups=1, replicas=replicas, name_servers=1, name_server_port=9876, base_port=10911
        )
        self.layout = lay_out(groups=1, replicas=replicas, name_servers=1, ports=ports)
        self.deaf = deaf
        self.states = {place.name: "S" for place in self.layout.brokers}
        self.states |= {server.name: "S" for server in self.layout.name_servers}
        self.cuts: dict[str, set[Link]] = {}
        self.slowed: dict[str, tuple[set[Link], LinkShape]] = {}
        self.shaped: dict[str, tuple[set[Link], Shaping]] = {}
        self.phases: dict[str, list[str]] = {}  # by node, of its next answers
        self.open_links: list[FakeOpenLink] = []
        self.calls: list[str] = []
        self.broken: dict[str, Exception] = {}  # by method, what it raises
        self.probes = 0
        self.parts = frozenset({Part.PROCESSES})
        self.stores = self.members = self.replacements = self.settings = self.releases = None
        self.system = self.links = self.processes = self

    def dial_table(self, slot: str) -> dict[str, str]:
        return {}

    async def start(self, dial: object = None) -> None: ...

    async def stop(self) -> None: ...

    async def abort(self) -> None: ...

    # Processes ---------------------------------------------------------------------------------

    async def kill(self, node: str) -> None:
        self._call("kill", node)
        self.states[node] = "gone"

    async def terminate(self, node: str, *, timeout_s: float) -> bool:
        self._call("terminate", node)
        self.states[node] = "gone"
        return True

    async def restart(self, node: str) -> None:
        self._call("restart", node)
        self.states[node] = "S"

    async def pause(self, node: str) -> None:
        self._call("pause", node)
        if not self.deaf:
            self.states[node] = "T"

    async def resume(self, node: str) -> None:
        self._call("resume", node)
        self.states[node] = "S"

    def state(self, node: str) -> str:
        return self.states.get(node, "S")

    def pid(self, node: str) -> int | None:
        return None

    def has_opened_store(self, node: str) -> bool | None:
        return None

    async def status(self, node: str) -> BrokerStatus | None:
        if self.states[node] != "S":
            return None
        name = node.rpartition("-")[2]
        phases = self.phases.get(node)
        return status(
            name,
            role="leader" if node == self.leader() else "follower",
            phase=phases.pop(0) if phases else "serving",
        )

    def leader(self) -> str | None:
        running = [place.name for place in self.layout.brokers if self.states[place.name] == "S"]
        return running[0] if running else None

    # Links -------------------------------------------------------------------------------------

    async def cut(self, links: Iterable[Link], tag: str) -> None:
        self._call("cut", tag)
        self.cuts[tag] = set() if self.deaf else set(links)

    async def slow(self, links: Iterable[Link], shape: LinkShape, tag: str) -> None:
        self._call("slow", tag)
        self.slowed[tag] = (set() if self.deaf else set(links), shape)

    async def shape(self, links: Iterable[Link], shaping: Shaping, tag: str) -> None:
        self._call("shape", tag)
        self.shaped[tag] = (set() if self.deaf else set(links), shaping)

    async def heal(self, tag: str) -> None:
        self._call("heal", tag)
        for effects in (self.cuts, self.slowed, self.shaped):
            effects.pop(tag, None)

    async def frames(self, tag: str) -> FrameHits | None:
        links, shaping = self.shaped.get(tag, (set(), None))
        if shaping is None:
            return FrameHits(seen=0, affected=0)
        return FrameHits(seen=10, affected=3 if links else 0)

    async def packets(self, link: Link) -> PacketCount | None:
        back = Link(who=link.whom, whom=link.who)
        lost = sum(
            int(shaping.attributes["percent"])
            for links, shaping in self.shaped.values()
            if shaping.name == "loss" and (link in links or back in links)
        )
        return PacketCount(sent=100, answered=100 - lost)

    async def open(self, link: Link) -> FakeOpenLink:
        return FakeOpenLink(self, link)

    async def probe(
        self, links: Sequence[Link], *, timeout_s: float = 0.6, until_closed: bool = False
    ) -> list[LinkProbe]:
        self.probes += 1
        return [self._probe(link, until_closed) for link in links]

    def is_silent(self, link: Link, *, is_new: bool) -> bool:
        back = Link(who=link.whom, whom=link.who)
        if any(link in cut or back in cut for cut in self.cuts.values()):
            return True
        for links, shaping in self.shaped.values():
            if link in links or back in links:
                if shaping.name in ENDS:
                    return True
                if shaping.name == "drop_syn" and is_new:
                    return True
                if shaping.name == "half_open" and bool(shaping.attributes["new"]) is is_new:
                    return True
        return False

    def _probe(self, link: Link, until_closed: bool) -> LinkProbe:
        if self.state(link.whom) != "S" or self.state(link.who) != "S":
            return LinkProbe(link=link, passes=None, round_trip_ms=None, evidence="gone")
        if self.is_silent(link, is_new=True):
            return LinkProbe(link=link, passes=False, round_trip_ms=None, evidence="silent")
        back = Link(who=link.whom, whom=link.who)
        delay = 0.0
        for links, shape in self.slowed.values():
            if link in links or back in links:
                delay += shape.latency_ms + shape.jitter_ms * (self.probes % 3 - 1)
                delay += 500 / shape.rate_kb_s if shape.rate_kb_s else 0
        for links, shaping in self.shaped.values():
            if link in links or back in links:
                delay += 5000 if shaping.name == "slicer" else 0
                delay += 800 if shaping.name == "slow_close" and until_closed else 0
        return LinkProbe(link=link, passes=True, round_trip_ms=1.0 + delay, evidence="answered")

    def _call(self, name: str, what: str) -> None:
        self.calls.append(f"{name} {what}")
        if name in self.broken:
            raise self.broken[name]

    def break_down(self, name: str) -> None:
        of_links = name in {"cut", "slow", "shape", "heal"}
        error = LinksError if of_links else SystemFailedError
        self.broken[name] = error(f"{name} does not work here")

    @property
    def untouched(self) -> bool:
        """Whether nothing of any fault is left."""
        left = self.cuts or self.slowed or self.shaped
        is_held = any(not link.closed for link in self.open_links)
        return not left and not is_held and set(self.states.values()) == {"S"}


def context(
    world: FakeWorld,
    *,
    leader: str | None = "of the world",
    seed: int = 1,
    statuses: Mapping[str, BrokerStatus] | None = None,
    **params,
):
    return FaultContext(
        world=world,
        rng=random.Random(seed),
        group=GROUP,
        tag="fault-0",
        params=params,
        leader=lambda _group: world.leader() if leader == "of the world" else leader,
        statuses=lambda: statuses or {},
    )


async def pause_s(seconds: float) -> None:
    await asyncio.sleep(seconds)
