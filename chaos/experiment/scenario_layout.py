"""The layout of a scenario's cluster: its places, spare ones included, on free ports.

Place in the data path: `chaos.experiment.experiment` lays out before it makes a world.

Invariant: no port is given twice.
"""

from __future__ import annotations

import random
import secrets
from pathlib import Path
from typing import Final

from chaos.cluster.access import secured_settings
from chaos.cluster.cluster import plan_ports
from chaos.cluster.layout import ClusterLayout, lay_out, with_spares
from chaos.cluster.processes import free_ports
from chaos.scenario.scenario import Scenario

__all__ = ["ACL_FILE", "broker_settings", "lay_out_scenario"]

ACL_FILE: Final = Path("secrets") / "plain_acl.yml"
"""The accounts of a secured cluster, below the run directory."""


def broker_settings(scenario: Scenario, run: Path) -> dict[str, int | bool | str]:
    """Return the section [broker] of each broker; a secured one finds its accounts in `run`."""
    secured = secured_settings(run / ACL_FILE) if scenario.cluster.access else {}
    return {**scenario.broker_settings, **secured}


def lay_out_scenario(scenario: Scenario, run: Path) -> ClusterLayout:
    """Lay out the scenario's cluster on free ports. Raises LayoutError, ProcessError."""
    cluster = scenario.cluster
    ports = plan_ports(
        groups=cluster.groups,
        replicas=cluster.replicas,
        name_servers=cluster.name_servers,
        namesrv_port=0,
        base_port=0,
    )
    layout = lay_out(
        groups=cluster.groups,
        replicas=cluster.replicas,
        name_servers=cluster.name_servers,
        ports=ports,
        engine=cluster.engine,
        raft_settings=scenario.raft_settings,
        broker_settings=broker_settings(scenario, run),
    )
    count = cluster.groups * cluster.spares
    if not count:
        return layout
    taken = set(ports.all_ports)
    free = [
        port
        for port in free_ports(2 * count + len(taken), random.Random(secrets.randbits(64)))
        if port not in taken
    ]
    return with_spares(layout, list(zip(free[:count], free[count : 2 * count], strict=True)))
