"""Links: the directed paths of bytes between places, and how they are cut, slowed and probed.

Place in the data path: one of the two halves of a world (`chaos.worlds.world`); the faults of the
network in `chaos.nemesis` act on it, whatever carries the bytes. `chaos.links.proxies` is the
implementation with a Toxiproxy proxy on every link.

A place is a process of the system (broker-a-n0, namesrv-0) or a client slot (client-0): a place
that clients of the workload dial from, which a successor of a crashed client takes over.

Invariants: a cut of the link (who, whom) swallows every byte that `who` sends to `whom`, on
connections of either's making, and no byte of the other direction; everything that carries a tag is
removed by `heal(tag)`.

Source: docs/DESIGN.md section 7 (worlds, links).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = [
    "FrameHits",
    "Link",
    "LinkEffect",
    "LinkProbe",
    "LinkShape",
    "Links",
    "LinksError",
    "OpenLink",
    "PacketCount",
    "Shaping",
    "both_ways",
]


class LinksError(Exception):
    """A link could not be cut, shaped or healed; the text says what and why."""


class LinkEffect(enum.Enum):
    """An effect on a link, which an implementation can have or not."""

    CUT = "cut"
    """Bytes are swallowed; the connection stays open."""
    SLOW = "slow"
    """Latency, jitter, a limit of bytes per second."""
    STREAM = "stream"
    """What a proxy does to a stream: resets, limits of bytes, slices, slow closes."""
    FRAMES = "frames"
    """What a proxy that knows RocketMQ's frames does to some of them, by request code."""
    PACKETS = "packets"
    """Loss, duplicates and disorder of packets, as only a kernel can do it."""


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
class Shaping:
    """An effect of type STREAM, FRAMES or PACKETS by its name and attributes.

    Names and attributes are those of Toxiproxy and of this project's own toxics (`reset_peer`,
    `limit_data`, `slicer`, `frame_drop`...). `share`: the part of connections that it applies to.
    """

    effect: LinkEffect
    name: str
    attributes: Mapping[str, int | tuple[int, ...]]
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProbe:
    """The result of an own connection through the link.

    `passes`: the far side reacted to what was sent, on every connection that carries the link;
    False: every connection stayed silent until the deadline; None: neither, or none could be made.
    `round_trip_ms`: slowest reaction, None without one.
    """

    link: Link
    passes: bool | None
    round_trip_ms: float | None
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameHits:
    """How many frames of its codes an effect of type FRAMES has met, and how many it has hit."""

    seen: int
    affected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketCount:
    """How many packets of one's own were sent along a link, and how many were answered."""

    sent: int
    answered: int


class OpenLink(Protocol):
    """An own connection through a link that stays open between two requests."""

    async def passes(self) -> bool | None:
        """Send a request; True: answered, False: silence, None: the connection has ended."""

    async def close(self) -> None: ...


class Links(Protocol):
    """The links of one cluster under test. Methods raise LinksError unless they say otherwise."""

    @property
    def name(self) -> str: ...

    @property
    def effects(self) -> frozenset[LinkEffect]:
        """The effects that these links can have."""

    async def start(self) -> None:
        """Make every link; the system's processes need not run yet."""

    async def stop(self) -> None: ...

    async def abort(self) -> None:
        """Leave nothing running, whatever state the links are in. Safe to call at any time."""

    def dial_table(self, dialer: str) -> Mapping[str, str]:
        """Return table address = address to dial, for the process or client slot `dialer`."""

    async def cut(self, links: Iterable[Link], tag: str) -> None: ...

    async def slow(self, links: Iterable[Link], shape: LinkShape, tag: str) -> None: ...

    async def shape(self, links: Iterable[Link], shaping: Shaping, tag: str) -> None:
        """Apply an effect of the types in `effects` to every stream that carries the links."""

    async def heal(self, tag: str) -> None:
        """Remove everything of that tag; do nothing where there is none."""

    async def frames(self, tag: str) -> FrameHits | None:
        """Return what the effects of type FRAMES of that tag have hit; None: not counted here."""

    async def packets(self, link: Link) -> PacketCount | None:
        """Send packets of one's own along the link; None: these links are not made of packets."""

    async def open(self, link: Link) -> OpenLink:
        """Connect through the link as `link.who` does, to a target that answers requests."""

    async def probe(
        self, links: Sequence[Link], *, timeout_s: float = 0.6, until_closed: bool = False
    ) -> list[LinkProbe]:
        """Probe all links at once; each takes about `timeout_s` at most, which silence takes.

        With `until_closed` the round trip ends when the far side has closed the connection, as the
        peers of a group do to a stranger; where it does not close there is none.
        """


def both_ways(some: Iterable[str], others: Iterable[str]) -> list[Link]:
    """Return every link between members of the two sides, in both directions."""
    there = list(others)
    return [
        link
        for one in some
        for other in there
        for link in (Link(who=one, whom=other), Link(who=other, whom=one))
    ]
