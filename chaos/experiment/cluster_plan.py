"""The layout of an experiment's cluster: the scenario's numbers, free ports, and its accounts.

Place in the data path: `chaos.experiment.experiment` lays the cluster out before it makes a world.

Invariant: no port is bound and no file is written here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from chaos.cluster.access import secured_settings
from chaos.cluster.cluster import plan_ports
from chaos.cluster.layout import ClusterLayout, lay_out
from chaos.scenario.scenario import Scenario

__all__ = ["ACL_FILE", "lay_out_cluster"]

ACL_FILE: Final = Path("secrets") / "plain_acl.yml"
"""The accounts of a secured cluster, below the run directory."""


def lay_out_cluster(scenario: Scenario, acl_file: Path = ACL_FILE) -> ClusterLayout:
    """Return the layout; `acl_file` is where a secured cluster finds its accounts."""
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
        broker_settings=scenario.broker_settings
        | (secured_settings(acl_file) if cluster.access else {}),
    )
