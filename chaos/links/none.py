"""No links: a cluster whose processes reach each other directly, so that no link can be changed.

Place in the data path: the links of a cluster that a person started (`ledgermq cluster up`), for
faults by hand (`chaos.experiment.by_hand`). Faults that need links are refused there by name.

Invariant: nothing is carried out silently: every change raises, every probe says that it knows
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

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

__all__ = ["NoLinks"]

_WHY: Final = "no link of this cluster can be changed: its processes dial each other directly"


class NoLinks:
    """Links without effects."""

    name: Final = "none"
    effects: Final[frozenset[LinkEffect]] = frozenset()

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self) -> None:
        """Do nothing."""

    async def abort(self) -> None:
        """Do nothing."""

    def dial_table(self, dialer: str) -> Mapping[str, str]:
        del dialer
        return {}

    async def cut(self, links: Iterable[Link], tag: str) -> None:
        raise LinksError(f"{_WHY} ({tag})")

    async def slow(self, links: Iterable[Link], shape: LinkShape, tag: str) -> None:
        raise LinksError(f"{_WHY} ({tag})")

    async def shape(self, links: Iterable[Link], shaping: Shaping, tag: str) -> None:
        raise LinksError(f"{_WHY} ({tag})")

    async def heal(self, tag: str) -> None:
        """Do nothing: there is nothing of that tag."""

    async def frames(self, tag: str) -> FrameHits | None:
        del tag
        return None

    async def packets(self, link: Link) -> PacketCount | None:
        del link
        return None

    async def open(self, link: Link) -> OpenLink:
        raise LinksError(f"{_WHY} ({link})")

    async def probe(
        self, links: Sequence[Link], *, timeout_s: float = 0.6, until_closed: bool = False
    ) -> list[LinkProbe]:
        return [
            LinkProbe(link=link, passes=None, round_trip_ms=None, evidence="no own connection")
            for link in links
        ]
