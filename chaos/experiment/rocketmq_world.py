"""The world of Apache RocketMQ: its layout on free ports, and how it is made.

Place in the data path: a row of `chaos.experiment.world_catalogue`.

Invariant: ports are drawn by the system and never from the experiment's seed, so that runs with the
same seed go on side by side.
"""

from __future__ import annotations

import random
import secrets
from typing import Final

from chaos.cluster.layout import ClusterLayout
from chaos.cluster.rocketmq_layout import lay_out_rocketmq
from chaos.cluster.rocketmq_ports import free_rocketmq_ports
from chaos.links.proxies import ProxyLinks
from chaos.scenario.scenario import Scenario
from chaos.systems.rocketmq.jars import RocketmqJarsError, require_java
from chaos.systems.rocketmq.system import RocketmqSystem
from chaos.worlds.host import WorldOptions
from chaos.worlds.world import World

__all__ = [
    "DEFAULT_VERSION",
    "lay_out_rocketmq_scenario",
    "make_rocketmq_world",
    "missing_for_rocketmq",
]

DEFAULT_VERSION: Final = "5.3.3"


def missing_for_rocketmq() -> str | None:
    """Return what this host lacks to run RocketMQ; None: nothing that can be told beforehand."""
    try:
        require_java()
    except RocketmqJarsError as error:
        return str(error)
    return None


def lay_out_rocketmq_scenario(scenario: Scenario) -> ClusterLayout:
    """Lay the scenario's cluster out. Raises LayoutError, PortInUseError."""
    cluster = scenario.cluster
    count = cluster.name_servers + 2 * cluster.groups * cluster.replicas
    return lay_out_rocketmq(
        groups=cluster.groups,
        replicas=cluster.replicas,
        name_servers=cluster.name_servers,
        engine=cluster.engine,
        ports=free_rocketmq_ports(count, random.Random(secrets.randbits(64))),
        broker_settings=scenario.broker_settings,
    )


def make_rocketmq_world(options: WorldOptions, *, version: str) -> World:
    """Make the world with that release. Raises SystemFailedError where it can't be had."""
    system = RocketmqSystem(options.run, options.layout, version=version)
    links = ProxyLinks(
        options.run,
        options.layout,
        options.client_slots,
        process_state=system.processes.state,
        toxiproxy_url=options.toxiproxy_url,
        seed=options.rng.getrandbits(31),
    )
    return World("rocketmq", system, links, options.client_slots)
