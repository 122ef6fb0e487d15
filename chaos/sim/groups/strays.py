"""Disks that were taken for lost, and are started again once their members were replaced.

Place in the data path: `operator` hands over such a disk, `cluster` runs the resulting broker to
the end of the seed. It dials under the member's name beside the true one, from an address of its
own: another store, which must not be counted and must not disturb the group.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Protocol

from broker.config.config import BrokerConfig
from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.sim.groups.operator import found_store
from chaos.sim.machine.disk import SimDisk

__all__ = ["Strays"]

_IP = "10.0.5.1"


class _MakeBroker(Protocol):
    def __call__(self, config: BrokerConfig, name: str | None = None) -> BrokerMachine: ...


class Strays:
    """The stray broker of a seed, at most one."""

    def __init__(
        self, make: _MakeBroker, rng: random.Random, *, rate: float, counts: dict[str, int]
    ) -> None:
        self._make = make
        self._rng = rng
        self._rate = rate
        self._counts = counts
        self.machines: list[BrokerMachine] = []

    def find_disk(self, node: BrokerMachine, disk: SimDisk) -> None:
        """Perhaps start a broker on the disk that `node` had before it was replaced."""
        if self.machines or self._rng.random() >= self._rate:
            return
        config = replace(
            node.config,
            listen=f"{_IP}:10911",
            advertised=f"{_IP}:10911",
            raft_listen=f"{_IP}:10915",
            store=found_store(node.config.store),
        )
        stray = self._make(config, name=f"{node.name}-old")
        stray.take_disk(disk)
        self.machines.append(stray)
        self._counts["stray_disks_started"] += 1
        stray.start()
