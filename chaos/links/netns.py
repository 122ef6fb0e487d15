"""Links between network namespaces: packets that a switch drops, loses or delays.

Place in the data path: the links of the world `netns`; `chaos.netns.network` is what they act on.
Nothing stands in the path of a connection: both ends are the kernel's own TCP, so a cut leaves
half-open connections and SYNs that nobody answers, as a cable does.

Invariants: the switch's rules are made anew of all that is kept under tags, so a heal removes what
its tag brought and nothing else; requests of the laboratory itself have an address that no rule
names; `abort` leaves no interface and no namespace, and neither does the death of this process.

Source: docs/DESIGN.md section 7 (worlds, links).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from chaos.cluster.layout import ClusterLayout
from chaos.links.base import (
    Link,
    LinkEffect,
    LinkProbe,
    LinksError,
    LinkShape,
    OpenLink,
    PacketCount,
    Shaping,
)
from chaos.links.link_probe import OpenConnection, probe_links
from chaos.links.proxy_plan import in_use, plan_proxies
from chaos.netns.departures import Delay
from chaos.netns.echoes import count_answers
from chaos.netns.host_probe import missing_for_delays
from chaos.netns.namespaces import NamespaceError
from chaos.netns.network import Network
from chaos.netns.nf_tables import PacketFilterError
from chaos.netns.plan import NetworkPlan, PlanError
from chaos.netns.rules import SHARE_SCALE, Action, Flow, PacketRule

__all__ = ["DROP_SYN", "LOSS", "NetnsLinks"]

LOSS: Final = "loss"
DROP_SYN: Final = "drop_syn"
OPEN_TIMEOUT_S: Final = 2.0
ECHOES: Final = 200
ECHO_TIMEOUT_S: Final = 0.4
_ERRORS: Final = (NamespaceError, PacketFilterError, OSError)


class NetnsLinks:
    """The links of one cluster. Sockets of the thread that calls `start` are the laboratory's."""

    name: Final = "netns"
    EFFECTS: Final = frozenset({LinkEffect.CUT, LinkEffect.PACKETS, LinkEffect.SLOW})

    def __init__(
        self,
        layout: ClusterLayout,
        client_slots: Sequence[str],
        *,
        process_state: Callable[[str], str],
        rng: random.Random,
        layout_now: Callable[[], ClusterLayout] | None = None,
    ) -> None:
        """Plan the network, and probe whether this host can delay packets.

        `layout`: of `chaos.netns.plan.at_namespace_addresses`. `process_state`: state letter of a
        process of the system. `layout_now`: the layout with the masters that groups have now; None:
        it never changes. Raises LinksError.
        """
        self._process_state = process_state
        self._carriers = plan_proxies(layout, client_slots, direct=True)
        self._layout_now = layout_now or (lambda: layout)
        self.delays_missing: Final = missing_for_delays()
        try:
            plan = NetworkPlan.of(layout, client_slots)
        except PlanError as error:
            raise LinksError(str(error)) from error
        self._plan = plan
        self._network = Network(plan, delays=self.delays_missing is None, rng=rng)
        self._echoes = 0
        self._rules: dict[str, list[PacketRule]] = {}  # by tag
        self._delays: dict[str, dict[Flow, Delay]] = {}

    @property
    def effects(self) -> frozenset[LinkEffect]:
        slow = set() if self.delays_missing is None else {LinkEffect.SLOW}
        return self.EFFECTS - slow

    def inside(self, name: str, argv: list[str]) -> list[str]:
        """Return the command line that becomes `argv` in the namespace of that process."""
        return self._network.argv(name, argv)

    async def start(self) -> None:
        """Make the network and enter the laboratory's namespace. Blocks for a second at most."""
        try:
            self._network.make()
            self._network.enter()
        except _ERRORS as error:
            raise LinksError(f"the network was not made: {error}") from error

    async def stop(self) -> None:
        self._close()

    async def abort(self) -> None:
        self._close()

    def dial_table(self, dialer: str) -> dict[str, str]:
        return {
            carrier.address: self._plan.dialled(dialer, carrier.address)
            for carrier in self._carriers
            if carrier.dialer == dialer
        }

    async def cut(self, links: Iterable[Link], tag: str) -> None:
        self._add(links, tag, Action.DROP)

    async def slow(self, links: Iterable[Link], shape: LinkShape, tag: str) -> None:
        """Delay the packets. Where another tag delays a link too, the slower of both counts."""
        if self.delays_missing is not None:
            raise LinksError(f"packets can't be delayed here: {self.delays_missing}")
        delay = Delay(
            latency_ms=shape.latency_ms, jitter_ms=shape.jitter_ms, rate_kb_s=shape.rate_kb_s
        )
        self._delays.setdefault(tag, {}).update(dict.fromkeys(self._flows(links), delay))
        self._apply()

    async def shape(self, links: Iterable[Link], shaping: Shaping, tag: str) -> None:
        """Lose packets (`loss`, attribute `percent`), or drop each SYN (`drop_syn`)."""
        if shaping.effect is LinkEffect.PACKETS and shaping.name == LOSS:
            percent = shaping.attributes.get("percent", 0)
            if not isinstance(percent, int) or not 0 < percent <= 100:
                raise LinksError(f"percent of lost packets must be 1..100, not {percent}")
            self._add(links, tag, Action.LOSE, percent * SHARE_SCALE // 100)
        elif shaping.effect is LinkEffect.PACKETS and shaping.name == DROP_SYN:
            self._add(links, tag, Action.DROP_SYN)
        else:
            raise LinksError(
                f"packets know {LOSS} and {DROP_SYN}, not {shaping.effect.value} {shaping.name}"
            )

    async def heal(self, tag: str) -> None:
        rules, delays = self._rules.pop(tag, None), self._delays.pop(tag, None)
        if rules is None and delays is None:
            return
        try:
            self._apply()
        except LinksError:  # kept, so that a later heal tries again
            self._rules[tag], self._delays[tag] = rules or [], delays or {}
            raise

    async def frames(self, tag: str) -> None:
        """Return None: nothing here knows frames."""

    async def packets(self, link: Link) -> PacketCount | None:
        self._echoes += 1
        try:
            target = self._plan.flow(link.who, link.whom).target
            with self._network.icmp_socket(link.who) as raw:
                answered = await count_answers(
                    raw,
                    target,
                    identifier=self._echoes & 0xFFFF,
                    count=ECHOES,
                    timeout_s=ECHO_TIMEOUT_S,
                )
        except (*_ERRORS, PlanError) as error:
            raise LinksError(f"no packets could be sent along {link}: {error}") from error
        return PacketCount(sent=ECHOES, answered=answered)

    async def open(self, link: Link) -> OpenLink:
        for carrier in self._carriers:
            if (carrier.dialer, carrier.target) == (link.who, link.whom):
                host, _, port = self._plan.dialled(carrier.dialer, carrier.address).rpartition(":")
                try:
                    return await OpenConnection.make(
                        host,
                        int(port),
                        carrier.protocol,
                        timeout_s=OPEN_TIMEOUT_S,
                        dialing=self._network.tcp_socket(link.who),
                    )
                except (*_ERRORS, TimeoutError) as error:
                    raise LinksError(f"no connection through {link}: {error}") from error
        raise LinksError(f"{link.who} never dials {link.whom}")

    async def probe(
        self, links: Sequence[Link], *, timeout_s: float = 0.6, until_closed: bool = False
    ) -> list[LinkProbe]:
        addresses = {
            carrier.name: self._plan.dialled(carrier.dialer, carrier.address)
            for carrier in self._carriers
        }
        try:
            return await probe_links(
                links,
                in_use(self._carriers, self._layout_now()),
                addresses,
                self._process_state,
                timeout_s=timeout_s,
                until_closed=until_closed,
                dials_through=True,
                socket_of=self._network.tcp_socket,
            )
        except NamespaceError as error:
            raise LinksError(f"links can't be probed: {error}") from error

    def _add(
        self, links: Iterable[Link], tag: str, action: Action, share: int = SHARE_SCALE
    ) -> None:
        rules = [PacketRule(flow=flow, action=action, share=share) for flow in self._flows(links)]
        # Kept before they are sent: a request without an answer may have been carried out.
        self._rules.setdefault(tag, []).extend(rules)
        self._apply()

    def _flows(self, links: Iterable[Link]) -> list[Flow]:
        try:
            return [self._plan.flow(link.who, link.whom) for link in links]
        except PlanError as error:
            raise LinksError(str(error)) from error

    def _apply(self) -> None:
        delays: dict[Flow, Delay] = {}
        for each in self._delays.values():
            for flow, delay in each.items():
                delays[flow] = max(delays.get(flow, delay), delay, key=lambda one: one.latency_ms)
        try:
            rules = [rule for rules in self._rules.values() for rule in rules]
            self._network.apply(rules, delays)
        except _ERRORS as error:
            raise LinksError(f"the switch did not take its rules: {error}") from error

    def _close(self) -> None:
        try:
            self._network.close()
        except _ERRORS as error:
            raise LinksError(f"the network was not closed: {error}") from error
