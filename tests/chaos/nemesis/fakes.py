"""A world of three nodes without processes: what a fault does to it is what a test sees."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.layout import fixed_ports, lay_out
from chaos.links.base import Link, LinkEffect, LinkProbe, LinksError, LinkShape, Shaping
from chaos.nemesis.base import FaultContext
from chaos.systems.base import Part, SystemFailedError


def status(node: str, *, role: str = "follower", term: int = 1, leader: str | None = "n0"):
    return BrokerStatus(
        group="broker-a",
        node=node,
        pid=1,
        address="127.0.0.1:1",
        role=role,
        term=term,
        leader=leader,
        ready=role == "leader",
        first_index=1,
        last_index=5,
        commit_index=5,
        applied_index=5,
    )


class FakeWorld:
    """`deaf`: cuts and delays are accepted and have no effect, so no fault may count as taken."""

    name = "fake"
    version = "0"
    dedupes = True
    run = Path("/nowhere")
    client_slots = ("client-0",)
    effects = frozenset(LinkEffect)
    parts = frozenset({Part.PROCESSES})
    stores = failpoints = clocks = members = settings = None

    def __init__(self, *, replicas: int = 3, deaf: bool = False) -> None:
        ports = fixed_ports(
            groups=1, replicas=replicas, name_servers=1, name_server_port=9876, base_port=10911
        )
        self.layout = lay_out(groups=1, replicas=replicas, name_servers=1, ports=ports)
        self.deaf = deaf
        self.states = {place.name: "S" for place in self.layout.brokers}
        self.cuts: dict[str, set[Link]] = {}
        self.slowed: dict[str, dict[Link, int]] = {}
        self.calls: list[str] = []
        self.broken: dict[str, Exception] = {}  # by method, what it raises
        self.system = self.links = self.processes = self

    def dial_table(self, slot: str) -> dict[str, str]:
        return {}

    async def start(self, dial: object = None) -> None: ...

    async def stop(self) -> None: ...

    async def abort(self) -> None: ...

    async def kill(self, node: str) -> None:
        self._call("kill", node)
        self.states[node] = "gone"

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

    async def status(self, node: str) -> BrokerStatus | None:
        if self.states[node] != "S":
            return None
        name = node.rpartition("-")[2]
        return status(name, role="leader" if name == "n0" else "follower")

    async def cut(self, links: Iterable[Link], tag: str) -> None:
        self._call("cut", tag)
        self.cuts[tag] = set() if self.deaf else set(links)

    async def slow(self, links: Iterable[Link], shape: LinkShape, tag: str) -> None:
        self._call("slow", tag)
        self.slowed[tag] = {} if self.deaf else dict.fromkeys(links, shape.latency_ms)

    async def shape(self, links: Iterable[Link], shaping: Shaping, tag: str) -> None:
        self._call("shape", tag)

    async def heal(self, tag: str) -> None:
        self._call("heal", tag)
        self.cuts.pop(tag, None)
        self.slowed.pop(tag, None)

    async def probe(self, links: Sequence[Link], *, timeout_s: float = 0.6) -> list[LinkProbe]:
        return [self._probe(link) for link in links]

    def _probe(self, link: Link) -> LinkProbe:
        if self.state(link.whom) != "S" or self.state(link.who) != "S":
            return LinkProbe(link=link, passes=None, round_trip_ms=None, evidence="gone")
        back = Link(who=link.whom, whom=link.who)
        if any(link in cut or back in cut for cut in self.cuts.values()):
            return LinkProbe(link=link, passes=False, round_trip_ms=None, evidence="silent")
        delay = sum(slow.get(link, 0) + slow.get(back, 0) for slow in self.slowed.values())
        return LinkProbe(link=link, passes=True, round_trip_ms=1.0 + delay, evidence="answered")

    def _call(self, name: str, what: str) -> None:
        self.calls.append(f"{name} {what}")
        if name in self.broken:
            raise self.broken[name]

    def break_down(self, name: str) -> None:
        of_links = name in {"cut", "slow", "shape", "heal"}
        error = LinksError if of_links else SystemFailedError
        self.broken[name] = error(f"{name} does not work here")


def context(world: FakeWorld, *, leader: str | None = "broker-a-n0", seed: int = 1, **params):
    return FaultContext(
        world=world,
        rng=random.Random(seed),
        group="broker-a",
        tag="fault-0",
        params=params,
        leader=lambda _group: leader,
        statuses=dict,
    )
