"""The world of Apache RocketMQ: its layout on free ports or in namespaces, and how it is made.

Place in the data path: a row of `chaos.experiment.world_catalogue`.

Links are proxies, or those of network namespaces, as a setting says. Proxies need no privilege, but
RocketMQ does not lead all that it sends through them (`chaos.systems.rocketmq.configurations`): a
master of Controller mode that is cut off by proxies goes on feeding its replicas.

Invariant: ports are drawn by the system and never from the experiment's seed, so that runs with the
same seed go on side by side.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from typing import Final

from chaos.cluster.layout import ClusterLayout
from chaos.cluster.rocketmq_layout import lay_out_rocketmq, with_ha_ports
from chaos.cluster.rocketmq_ports import free_rocketmq_ports
from chaos.links.netns import NetnsLinks
from chaos.links.proxies import ProxyLinks
from chaos.netns import host_probe
from chaos.netns.plan import at_namespace_addresses
from chaos.scenario.scenario import Scenario
from chaos.systems.rocketmq.jars import RocketmqJarsError, require_java
from chaos.systems.rocketmq.system import RocketmqSystem
from chaos.worlds.host import WorldOptions
from chaos.worlds.world import World

__all__ = [
    "ROCKETMQ_SETTINGS",
    "lay_out_rocketmq_scenario",
    "make_rocketmq_world",
    "missing_for_rocketmq",
    "settings_problem",
]

_NAMESPACES: Final = "netns"
_LINKS: Final = ("proxies", _NAMESPACES)
ROCKETMQ_SETTINGS: Final[Mapping[str, str]] = {"version": "5.3.3", "links": "proxies"}
"""Name = default. `links` says what stands between processes, proxies or nothing (netns)."""


def missing_for_rocketmq() -> str | None:
    """Return what this host lacks to run RocketMQ; None: nothing that can be told beforehand."""
    try:
        require_java()
    except RocketmqJarsError as error:
        return str(error)
    return None


def settings_problem(settings: Mapping[str, str]) -> str | None:
    """Return what is wrong with the settings, or what this host lacks for them; None: nothing."""
    links = settings["links"]
    if links not in _LINKS:
        return f"links must be one of {', '.join(_LINKS)}, not {links!r}"
    return host_probe.missing() if links == _NAMESPACES else None


def lay_out_rocketmq_scenario(scenario: Scenario, settings: Mapping[str, str]) -> ClusterLayout:
    """Lay the scenario's cluster out. Raises LayoutError, PortInUseError."""
    cluster = scenario.cluster
    count = cluster.name_servers + 2 * cluster.groups * cluster.replicas
    layout = lay_out_rocketmq(
        groups=cluster.groups,
        replicas=cluster.replicas,
        name_servers=cluster.name_servers,
        engine=cluster.engine,
        ports=free_rocketmq_ports(count, random.Random(secrets.randbits(64))),
        broker_settings=scenario.broker_settings,
    )
    if settings["links"] == _NAMESPACES:
        return with_ha_ports(at_namespace_addresses(layout))
    return layout


def make_rocketmq_world(options: WorldOptions, settings: Mapping[str, str]) -> World:
    """Make the world of these settings. Raises SystemFailedError, LinksError."""
    if settings["links"] == _NAMESPACES:
        return _in_namespaces(options, settings["version"])
    system = RocketmqSystem(options.run, options.layout, version=settings["version"])
    proxies = ProxyLinks(
        options.run,
        options.layout,
        options.client_slots,
        process_state=system.processes.state,
        toxiproxy_url=options.toxiproxy_url,
        seed=options.rng.getrandbits(31),
    )
    return World("rocketmq", system, proxies, options.client_slots)


def _in_namespaces(options: WorldOptions, version: str) -> World:
    links: NetnsLinks

    def inside(name: str, argv: list[str]) -> list[str]:
        return links.inside(name, argv)

    system = RocketmqSystem(options.run, options.layout, version=version, inside=inside)
    links = NetnsLinks(
        options.layout,
        options.client_slots,
        process_state=system.processes.state,
        rng=random.Random(options.rng.getrandbits(64)),
    )
    return World("rocketmq", system, links, options.client_slots)
