"""Free ports for a RocketMQ cluster, with those beside them that its brokers listen at as well.

Place in the data path: an experiment draws them before `chaos.cluster.rocketmq_layout` hands them
out.
"""

from __future__ import annotations

import random
from typing import Final

from chaos.cluster.processes import PortInUseError, check_ports_free, free_ports
from chaos.cluster.rocketmq_layout import ports_beside

__all__ = ["free_rocketmq_ports"]

_CANDIDATES_PER_PORT: Final = 4


def free_rocketmq_ports(count: int, rng: random.Random) -> list[int]:
    """Return `count` ports, of which no one needs a port beside another. Raises PortInUseError."""
    found: list[int] = []
    taken: set[int] = set()
    for port in free_ports(_CANDIDATES_PER_PORT * count, rng):
        block = {port, *ports_beside(port)}
        if len(found) == count or not taken.isdisjoint(block):
            continue
        try:
            check_ports_free(dict.fromkeys(block, "a RocketMQ broker"))
        except PortInUseError:
            continue  # in use: no candidate
        found.append(port)
        taken |= block
    if len(found) < count:
        raise PortInUseError(f"no {count} free ports with those beside them")
    return found
