"""The worlds by name: how each is built, and what it needs of this host.

Place in the data path: `chaos.experiment.experiment` builds one; `ledgermq chaos worlds` prints
them.

Invariant: a world whose needs are not met is refused by the name of what is missing, before any
process is started.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from chaos.cluster.layout import ClusterLayout
from chaos.links.base import LinkEffect
from chaos.links.proxies import ProxyLinks
from chaos.systems.base import Part
from chaos.systems.ledgermq import LedgermqSystem
from chaos.worlds.world import World

__all__ = ["WORLDS", "WorldOptions", "WorldSpec", "worlds_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """What an experiment asks of a world. `toxiproxy_url` None: a server of its own."""

    run: Path
    layout: ClusterLayout
    client_slots: Sequence[str]
    toxiproxy_url: str | None
    rng: random.Random


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """A row of `ledgermq chaos worlds`. `missing` returns what this host lacks, None:
    nothing. `parts`, `effects`: what its system and its links can have.
    """

    name: str
    summary: str
    missing: Callable[[], str | None]
    parts: frozenset[Part]
    effects: frozenset[LinkEffect]
    make: Callable[[WorldOptions], World]


def _nothing_missing() -> None:
    return None


def _local(options: WorldOptions) -> World:
    system = LedgermqSystem(options.run, options.layout)
    links = ProxyLinks(
        options.run,
        options.layout,
        options.client_slots,
        process_state=system.processes.state,
        toxiproxy_url=options.toxiproxy_url,
        seed=options.rng.getrandbits(31),
    )
    return World("local", system, links, options.client_slots)


WORLDS: Final[Mapping[str, WorldSpec]] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            WorldSpec(
                name="local",
                summary="processes of this host, a Toxiproxy proxy on every link",
                missing=_nothing_missing,
                parts=LedgermqSystem.parts,
                effects=ProxyLinks.effects,
                make=_local,
            ),
        )
    }
)


def worlds_of(parts: frozenset[Part], effects: frozenset[LinkEffect]) -> list[str]:
    """Return the names of the worlds that have all of these parts and effects."""
    return [w.name for w in WORLDS.values() if parts <= w.parts and effects <= w.effects]
