"""All faults by name: what `ledgermq chaos faults` prints and scenarios refer to.

Invariant: a fault's name is the key and stands in its SPEC once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from chaos.nemesis import (
    cut_clients,
    cut_name_servers,
    kill,
    one_way_cut,
    partition_halves,
    partition_leader,
    pause,
    slow_links,
)
from chaos.nemesis.base import FaultSpec

__all__ = ["CATALOGUE"]

CATALOGUE: Final[Mapping[str, FaultSpec]] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            partition_leader.SPEC,
            partition_halves.SPEC,
            one_way_cut.SPEC,
            cut_clients.SPEC,
            cut_name_servers.SPEC,
            kill.SPEC,
            pause.SPEC,
            slow_links.SPEC,
        )
    }
)
