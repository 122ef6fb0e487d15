"""The links of a cluster that somebody else runs, cut and healed by the user's own commands.

Place in the data path: the links of the world `external`; `chaos.cluster.external_file` has the
commands.

Invariants: a link that was cut, or may have been, is healed by its tag or by `abort`; a probe says
only what the probe command said.

Source: docs/BRING-YOUR-OWN.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from chaos.cluster.external_file import ExternalCluster
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

__all__ = ["ExternalLinks"]

_ERROR_TEXT_MAX: Final = 300


class ExternalLinks:
    """Cuts and heals the links of a cluster by the commands that its file names.

    Clients dial brokers directly, not through proxies. Where the file names no commands to cut and
    to heal, `effects` is empty. Effects other than a cut raise LinksError.
    """

    name: Final = "external"

    def __init__(self, cluster: ExternalCluster) -> None:
        self._cluster = cluster
        self.effects: Final = frozenset({LinkEffect.CUT} if cluster.has_cuts else ())
        self._cut: dict[str, list[Link]] = {}  # by tag

    async def start(self) -> None:
        """Do nothing: the links are there."""

    async def stop(self) -> None:
        """Do nothing."""

    async def abort(self) -> None:
        """Heal what is still cut."""
        for tag in list(self._cut):
            await self.heal(tag)

    def dial_table(self, dialer: str) -> dict[str, str]:
        return {}

    async def cut(self, links: Iterable[Link], tag: str) -> None:
        for link in links:
            # Kept before the command: one without an answer may have been carried out.
            self._cut.setdefault(tag, []).append(link)
            await self._cluster.succeed("cut", LinksError, **self._ends(link))

    async def slow(self, links: Iterable[Link], shape: LinkShape, tag: str) -> None:
        raise LinksError("an external cluster has no command to slow a link")

    async def shape(self, links: Iterable[Link], shaping: Shaping, tag: str) -> None:
        raise LinksError(f"an external cluster has no command for {shaping.name}")

    async def heal(self, tag: str) -> None:
        while self._cut.get(tag):
            await self._cluster.succeed("heal", LinksError, **self._ends(self._cut[tag][-1]))
            self._cut[tag].pop()
        self._cut.pop(tag, None)

    async def frames(self, tag: str) -> FrameHits | None:
        return None  # nobody counts frames there

    async def packets(self, link: Link) -> PacketCount | None:
        return None  # nobody sends packets there

    async def open(self, link: Link) -> OpenLink:
        raise LinksError("an external cluster has no command to open a connection")

    async def probe(
        self, links: Sequence[Link], *, timeout_s: float = 0.6, until_closed: bool = False
    ) -> list[LinkProbe]:
        return list(await asyncio.gather(*(self._probe(link) for link in links)))

    async def _probe(self, link: Link) -> LinkProbe:
        if "probe" not in self._cluster.commands:
            return LinkProbe(
                link=link, passes=None, round_trip_ms=None, evidence="there is no probe command"
            )
        begin = asyncio.get_running_loop().time()
        try:
            code, output = await self._cluster.run("probe", **self._ends(link))
        except TimeoutError:
            code, output = 2, f"no end within {self._cluster.timeout_s:g} s"
        elapsed_ms = (asyncio.get_running_loop().time() - begin) * 1000
        passes = {0: True, 1: False}.get(code)
        text = f"the probe command ended with {code}: {output[:_ERROR_TEXT_MAX]}"
        return LinkProbe(
            link=link, passes=passes, round_trip_ms=elapsed_ms if passes else None, evidence=text
        )

    def _ends(self, link: Link) -> dict[str, str]:
        hosts = self._cluster.hosts
        return {
            "who": link.who,
            "whom": link.whom,
            "who_host": hosts.get(link.who, "laboratory"),
            "whom_host": hosts.get(link.whom, "laboratory"),
        }
