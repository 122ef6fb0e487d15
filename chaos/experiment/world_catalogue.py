"""The worlds by name: how each is laid out and built, and what it needs of this host.

Place in the data path: `chaos.experiment.experiment` builds one; `ledgermq chaos worlds` prints
them.

Invariant: a world whose needs are not met is refused by the name of what is missing, before any
process is started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from chaos.cluster.cluster import plan_ports
from chaos.cluster.layout import ClusterLayout, fixed_ports, lay_out
from chaos.links.base import LinkEffect
from chaos.links.proxies import ProxyLinks
from chaos.scenario.scenario import Scenario
from chaos.sim.world.simulated_host import SimulatedHost, at_simulated_addresses
from chaos.sim.world.simulated_links import SimulatedLinks
from chaos.sim.world.simulated_system import SimulatedSystem
from chaos.systems.base import Part
from chaos.systems.ledgermq import LedgermqSystem
from chaos.worlds.host import Host, RealHost, WorldOptions
from chaos.worlds.world import World

__all__ = ["WORLDS", "WorldSpec", "worlds_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """A row of `ledgermq chaos worlds`.

    `missing` returns what this host lacks, None: nothing. `parts`, `effects`: what its system and
    its links can have. `make_host` takes the experiment's seed.
    """

    name: str
    summary: str
    missing: Callable[[], str | None]
    parts: frozenset[Part]
    effects: frozenset[LinkEffect]
    lay_out: Callable[[Scenario], ClusterLayout]
    make_host: Callable[[int], Host]


def worlds_of(parts: frozenset[Part], effects: frozenset[LinkEffect]) -> list[str]:
    """Return the names of the worlds that have all of these parts and effects."""
    return [w.name for w in WORLDS.values() if parts <= w.parts and effects <= w.effects]


def _nothing_missing() -> None:
    return None


def _on_free_ports(scenario: Scenario) -> ClusterLayout:
    cluster = scenario.cluster
    ports = plan_ports(
        groups=cluster.groups,
        replicas=cluster.replicas,
        name_servers=cluster.name_servers,
        namesrv_port=0,
        base_port=0,
    )
    return lay_out(
        groups=cluster.groups,
        replicas=cluster.replicas,
        name_servers=cluster.name_servers,
        ports=ports,
        engine=cluster.engine,
        raft_settings=scenario.raft_settings,
        broker_settings=scenario.broker_settings,
    )


def _on_simulated_machines(scenario: Scenario) -> ClusterLayout:
    cluster = scenario.cluster
    layout = lay_out(
        groups=cluster.groups,
        replicas=cluster.replicas,
        name_servers=cluster.name_servers,
        ports=fixed_ports(
            groups=cluster.groups,
            replicas=cluster.replicas,
            name_servers=cluster.name_servers,
            name_server_port=9876,
            base_port=10911,
        ),
        engine=cluster.engine,
        raft_settings=scenario.raft_settings,
        broker_settings=scenario.broker_settings,
    )
    return at_simulated_addresses(layout)


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


def _simulated_host(seed: int) -> Host:
    return SimulatedHost(f"experiment/{seed}")


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
                lay_out=_on_free_ports,
                make_host=lambda _: RealHost(_local),
            ),
            WorldSpec(
                name="sim",
                summary="the same brokers, name servers and clients on virtual time: simulated"
                " disks, clocks and network, repeated exactly by the seed",
                missing=_nothing_missing,
                parts=SimulatedSystem.parts,
                effects=SimulatedLinks.effects,
                lay_out=_on_simulated_machines,
                make_host=_simulated_host,
            ),
        )
    }
)
