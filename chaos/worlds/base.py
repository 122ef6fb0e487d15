"""The interface of a cluster under test for faults and experiments, whatever it is made of.

Place in the data path: `chaos.experiment.experiment` starts and stops a World, `chaos.nemesis`
breaks and heals it; `chaos.worlds.local` is the world of processes on this host, each link of which
goes through a Toxiproxy proxy of its own.

Names are process names of `chaos.cluster.layout` (broker-a-n0, namesrv-0) and those of client slots
(client-0): a slot is a place that clients of the workload dial from, with its own proxies, which a
successor of a crashed client takes over.

Invariants: a cut of the link (who, whom) swallows every byte that `who` sends to `whom`, on
connections of either's making, and no byte of the other direction; everything that carries a tag is
removed by `mend(tag)`; status and process state are queried past every proxy.

Source: docs/DESIGN.md section 7 (worlds, links).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.layout import ClusterLayout

__all__ = ["Link", "LinkProbe", "LinkShape", "World", "WorldError", "both_ways"]


class WorldError(Exception):
    """The world could not carry out a request; the text says what and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The directed path of bytes from `who` to `whom`."""

    who: str
    whom: str

    def __str__(self) -> str:
        return f"{self.who}->{self.whom}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkShape:
    """How a link is slowed: delay of `latency_ms` ± `jitter_ms`, `rate_kb_s` KB/s (0: no limit)."""

    latency_ms: int
    jitter_ms: int
    rate_kb_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProbe:
    """The result of an own connection through the link's proxies.

    `passes`: the far side reacted to what was sent, on every connection that carries the link;
    False: every connection stayed silent until the deadline; None: neither, or none could be made.
    `round_trip_ms`: slowest reaction, None without one.
    """

    link: Link
    passes: bool | None
    round_trip_ms: float | None
    evidence: str


class World(Protocol):
    """One cluster under test. Methods raise WorldError unless they say otherwise."""

    @property
    def name(self) -> str: ...

    @property
    def layout(self) -> ClusterLayout: ...

    @property
    def run(self) -> Path:
        """The run directory, with stores and outputs."""

    @property
    def client_slots(self) -> tuple[str, ...]: ...

    def dial_table(self, slot: str) -> Mapping[str, str]:
        """Return table address = address to dial, for a client at that slot."""

    async def start(self) -> None:
        """Start everything and wait until each group has a ready leader."""

    async def stop(self) -> None:
        """Stop the brokers cleanly, then all else. Every store is complete when it returns."""

    async def abort(self) -> None:
        """Leave nothing running, whatever state the world is in. Safe to call at any time."""

    async def kill(self, node: str) -> None:
        """Send SIGKILL: no flush, no notice to peers. The process is gone on return."""

    async def restart(self, node: str) -> None:
        """Start a node that is gone. Returns before the node serves."""

    async def pause(self, node: str) -> None: ...

    async def resume(self, node: str) -> None: ...

    def process_state(self, node: str) -> str:
        """Return the state letter of proc(5) ("T": stopped), or "gone"."""

    async def status(self, node: str) -> BrokerStatus | None: ...

    async def cut(self, links: Iterable[Link], tag: str) -> None: ...

    async def slow(self, links: Iterable[Link], shape: LinkShape, tag: str) -> None: ...

    async def mend(self, tag: str) -> None:
        """Remove every cut and delay of that tag; do nothing where there is none."""

    async def probe(self, links: Sequence[Link], *, timeout_s: float = 0.6) -> list[LinkProbe]:
        """Probe all links at once; each takes about `timeout_s` at most, which silence takes."""


def both_ways(some: Iterable[str], others: Iterable[str]) -> list[Link]:
    """Return every link between members of the two sides, in both directions."""
    there = list(others)
    return [
        link
        for one in some
        for other in there
        for link in (Link(who=one, whom=other), Link(who=other, whom=one))
    ]
