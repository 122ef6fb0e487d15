"""Links of the simulated network: each pair of dialer and target has an address of its own.

Place in the data path: the links of the world `sim`. The laboratory's clients all run on one
machine; a slot is another place of the network, from which the connection is made where a client
dials an address of the slot's own (`SimTcp.add_alias`). So a link is cut as between machines.

Invariants: as for all links; the pairs are those that the proxies of a world of processes have
(`chaos.links.proxy_plan`), and are probed in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from chaos.cluster.layout import ClusterLayout
from chaos.links.base import (
    FrameHits,
    Link,
    LinkEffect,
    LinkProbe,
    LinksError,
    LinkShape,
    OpenLink,
    PacketCount,
    Shaping,
)
from chaos.links.link_probe import open_link, probe_links
from chaos.links.proxy_plan import in_use, plan_proxies
from chaos.sim.machine.tcp import SimTcp

__all__ = ["SimulatedLinks"]

_OPEN_TIMEOUT_S: Final = 0.6
_IPV4_ONLY: Final = frozenset({"accounts-users"})
"""Places of clients whose rights go by patterns of IPv4 addresses; all others dial by IPv4 and IPv6
in turn, so that records have hosts of both sizes."""


class SimulatedLinks:
    """The links of one simulated cluster."""

    name: Final = "simulated"
    effects: Final = frozenset({LinkEffect.CUT, LinkEffect.SLOW})

    def __init__(
        self,
        layout: ClusterLayout,
        client_slots: Sequence[str],
        tcp: SimTcp,
        *,
        process_state: Callable[[str], str],
        layout_now: Callable[[], ClusterLayout],
    ) -> None:
        self._tcp = tcp
        self._slots = tuple(client_slots)
        self._process_state = process_state
        self._layout_now = layout_now
        self._pairs = plan_proxies(layout, client_slots)
        self._addresses: dict[str, str] = {}  # by pair
        self._cut: dict[str, list[Link]] = {}  # by tag
        self._slowed: dict[str, tuple[LinkShape, list[Link]]] = {}  # by tag

    async def start(self) -> None:
        for number, slot in enumerate(self._slots, start=1):
            ips = [f"10.1.{number // 256}.{number % 256}"]
            if slot not in _IPV4_ONLY:
                ips.append(f"fd00::1:{number:x}")
            self._tcp.add_machine(slot, *ips)
        for number, pair in enumerate(self._pairs, start=1):
            host, _, port = pair.address.rpartition(":")
            alias = f"10.2.{number // 256}.{number % 256}"
            self._tcp.add_alias(alias, source=pair.dialer, target=host)
            self._addresses[pair.name] = f"{alias}:{port}"

    async def stop(self) -> None:
        """Do nothing: there is nothing that runs."""

    async def abort(self) -> None:
        """Do nothing, as `stop`."""

    def dial_table(self, dialer: str) -> dict[str, str]:
        return {
            pair.address: self._addresses[pair.name]
            for pair in self._pairs
            if pair.dialer == dialer
        }

    async def cut(self, links: Iterable[Link], tag: str) -> None:
        for link in links:
            self._tcp.cut(link.who, link.whom)
            self._cut.setdefault(tag, []).append(link)

    async def slow(self, links: Iterable[Link], shape: LinkShape, tag: str) -> None:
        slowed = list(links)
        self._slowed[tag] = shape, slowed
        self._apply_delays(slowed)

    async def shape(self, links: Iterable[Link], shaping: Shaping, tag: str) -> None:
        raise LinksError(f"simulated links know no {shaping.name}")

    async def heal(self, tag: str) -> None:
        for link in self._cut.pop(tag, []):
            self._tcp.heal(link.who, link.whom)
        if tag in self._slowed:
            _, slowed = self._slowed.pop(tag)
            self._apply_delays(slowed)

    async def frames(self, tag: str) -> FrameHits | None:
        return None  # simulated links count no frames

    async def packets(self, link: Link) -> PacketCount | None:
        return None  # simulated links carry bytes, not packets

    async def open(self, link: Link) -> OpenLink:
        pairs = in_use(self._pairs, self._layout_now())
        return await open_link(link, pairs, self._addresses, timeout_s=_OPEN_TIMEOUT_S)

    async def probe(
        self, links: Sequence[Link], *, timeout_s: float = 0.6, until_closed: bool = False
    ) -> list[LinkProbe]:
        return await probe_links(
            links,
            in_use(self._pairs, self._layout_now()),
            self._addresses,
            self._process_state,
            timeout_s=timeout_s,
            until_closed=until_closed,
            dials_through=True,
        )

    def _apply_delays(self, links: Iterable[Link]) -> None:
        """Give each link the delays of all faults that slow it, and the least of their rates."""
        for link in links:
            shapes = [shape for shape, slowed in self._slowed.values() if link in slowed]
            rates = [shape.rate_kb_s for shape in shapes if shape.rate_kb_s]
            self._tcp.slow(
                link.who,
                link.whom,
                1_000 * sum(shape.latency_ms for shape in shapes),
                jitter_us=1_000 * sum(shape.jitter_ms for shape in shapes),
                byte_us=1_000 / min(rates) if rates else 0.0,
            )
