"""The faults of whole groups, beside those that bare cores suffer too.

Place in the data path: as `chaos.sim.seed.nemesis`, whose faults it inherits; acts on brokers,
clients and name servers of a `chaos.sim.groups.cluster`.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.sim.groups.machine import Machine
from chaos.sim.groups.operator import GroupOperator
from chaos.sim.groups.wall_clocks import WallClocks
from chaos.sim.machine.disk import DiskFault
from chaos.sim.machine.tcp import SimTcp
from chaos.sim.seed.nemesis import Nemesis
from raft.messages import NodeId

__all__ = ["GroupNemesis"]

_FAILED_RESTART_US_MIN = 10_000  # a node whose disk was full is not restarted at the same instant
_STOP_STEPS_MAX = 60
_STOP_DISK_OPERATIONS_MAX = 12
_ROOM_BYTES_MAX = 4_096
_OPENING_OPERATIONS_MAX = 150
_GARBLED_COUNT_MAX = 4  # frames in succession, each on a connection of its own
_DISK_FAULTS = tuple(
    DiskFault(operation=operation, error=error)
    for operation, error in (
        ("write", errno.ENOSPC),
        ("truncate", errno.ENOSPC),
        ("allocate", errno.ENOSPC),
        ("write", errno.EIO),
        ("sync", errno.EIO),
        ("open", errno.EIO),
        ("rename", errno.EIO),
        ("remove", errno.EIO),
        ("read", errno.EIO),
        ("allocate", errno.EIO),
    )
)


class GroupNemesis(Nemesis[BrokerMachine]):
    """The nemesis of a group.

    `clients` and `name_servers` have no disk: their state dies with their process.
    """

    def __init__(
        self,
        *,
        clients: Sequence[Machine],
        name_servers: Sequence[Machine],
        operator: GroupOperator,
        wall_clocks: WallClocks,
        opening_failure_rate: float,
        network: SimTcp,
        **others: Any,
    ) -> None:
        super().__init__(network=network, **others)
        self._tcp = network
        self._opening_failure_rate = opening_failure_rate
        self._operator = operator
        self._wall_clocks = wall_clocks
        self._clients = clients
        self._name_servers = name_servers

    def on_machine_death(self, machine: Machine) -> None:
        """Schedule the restart of a dead client or name server."""
        if not self.running:
            return
        rng = self._generator(f"restart/{machine.name}/{machine.incarnation}")
        delay_us = int(rng.random() ** 2 * self._times.restart_us_max)
        self._scheduler.after(delay_us, partial(self._start_machine, machine))

    def _start_machine(self, machine: Machine) -> None:
        if self.running and not machine.alive:
            machine.start()

    # --- brokers -------------------------------------------------------------------------------

    def restart(self, node: BrokerMachine, rng: random.Random) -> None:
        if node.alive or not self.running:
            return
        if rng.random() < self._opening_failure_rate:
            self._trouble_opening(node, rng)
        else:
            node.start()

    def _trouble_opening(self, node: BrokerMachine, rng: random.Random) -> None:
        """Start the node, and let it die again or its disk fail while it recovers or soon after.

        The fault comes in its first operations, in the middle, or after its first writes. Where a
        seed does so often, the next start may fail as well.
        """
        disk = node.disk
        node.fuse_is_power = rng.random() < 0.5
        kind = rng.choice(("early", "anywhere", "writing", "step", "error", "error"))
        match kind:
            case "early":
                disk.fuse = 1 + int(rng.random() * 12)
            case "anywhere":
                disk.fuse = 1 + int(rng.random() ** 2 * _OPENING_OPERATIONS_MAX)
            case "writing":
                disk.fuse_after = rng.choice(("write", "truncate", "remove", "rename", "sync"))
                disk.fuse = 1 + int(rng.random() * 6)
            case "error":
                disk.fault = rng.choice(_DISK_FAULTS)
        node.start()
        if kind == "step":
            node.step_fuse = 1 + int(rng.random() * 30)
        self._counts["openings_troubled"] += 1

    def on_death(self, node: BrokerMachine) -> None:
        if self.running and node.disk.has_failed:
            rng = self._generator(f"restart/{node.name}/{node.incarnation}")
            delay_us = int(rng.random() ** 3 * self._times.restart_us_max)
            delay_us = max(_FAILED_RESTART_US_MIN, delay_us)
            self._scheduler.after(delay_us, partial(self.restart, node, rng))
        else:
            super().on_death(node)

    def _stop_midway(self) -> str | None:
        """Send SIGTERM, and kill the broker before the stop ends."""
        node = self._leader() if self._rng.random() < 0.5 else self._alive()
        if node is None or node.paused:
            return None
        node.stop_cleanly()
        node.fuse_is_power = self._rng.random() < 0.7
        if self._rng.random() < 0.5:
            node.step_fuse = 1 + int(self._rng.random() * _STOP_STEPS_MAX)
        else:
            node.disk.fuse = 1 + int(self._rng.random() * _STOP_DISK_OPERATIONS_MAX)
        return f"{node.name} in {node.step_fuse or node.disk.fuse}"

    def _disk_error(self) -> str | None:
        node = self._alive()
        if node is None:
            return None
        node.disk.fault = fault = self._rng.choice(_DISK_FAULTS)
        return f"{node.name} {fault.operation} {errno.errorcode[fault.error]}"

    def _no_room(self) -> str | None:
        """Let another user take all but a few bytes of a broker's disk for a while.

        A broker that starts meanwhile starts without room.
        """
        node = self._rng.choice(self._nodes)
        disk = node.disk
        disk.capacity_bytes = disk.used_bytes + int(self._rng.random() * _ROOM_BYTES_MAX)
        self._heal_later(partial(setattr, disk, "capacity_bytes", None))
        if node.alive and self._rng.random() < 0.5:
            node.crash(power=self._rng.random() < 0.5, survival=node.draw_survival())
            self.on_death(node)
        return node.name

    def _stop_cleanly(self) -> str | None:
        node = self._leader() if self._rng.random() < 0.5 else self._alive()
        if node is None or node.paused:
            return None
        node.stop_cleanly()
        return node.name

    def _wall_clock_jump(self) -> str | None:
        return self._wall_clocks.jump_some(self._rng)

    def _rot_disk(self) -> str | None:
        """Damage a closed segment of a broker while it is down."""
        node = self._alive()
        if node is None or self._operator.is_busy:
            return None
        node.crash(power=False, survival=node.draw_survival())
        self.on_death(node)
        return self._operator.spoil(node, self._rng)

    def _replace_wiped(self) -> str | None:
        """Lose a broker's disk, and restart it with an empty one."""
        node = self._alive()
        leader = self._leader()
        if node is None or leader is None or node is leader or self._operator.is_busy:
            return None
        node.crash(power=True, survival=node.draw_survival())
        self.on_death(node)
        return node.name if self._operator.wipe(node) else None

    def _fill_disk(self) -> str | None:
        """Fill the disk of the leader, of a follower, or of all, until space is freed."""
        leader = self._leader()
        node = leader if leader is not None and self._rng.random() < 0.5 else self._alive()
        if node is None:
            return None
        full = list(self._nodes) if self._rng.random() < 0.2 else [node]
        for one in full:
            one.disk_is_full = True
        self._heal_later(partial(self._make_room, full))
        return " ".join(one.name for one in full)

    @staticmethod
    def _make_room(nodes: Sequence[BrokerMachine]) -> None:
        for node in nodes:
            node.disk_is_full = False

    # --- clients and name servers --------------------------------------------------------------

    def _crash_client(self) -> str | None:
        return self._crash_one_of(self._clients)

    def _crash_name_server(self) -> str | None:
        return self._crash_one_of(self._name_servers)

    def _crash_one_of(self, machines: Sequence[Machine]) -> str | None:
        alive = [machine for machine in machines if machine.alive]
        if not alive:
            return None
        machine = self._rng.choice(alive)
        machine.die(power=self._rng.random() < 0.5)
        self.on_machine_death(machine)
        return machine.name

    def _garble_link(self) -> str | None:
        """Garble frames between two brokers, in one direction."""
        return self._garble(*self._pair())

    def _garble_client(self) -> str | None:
        """Garble frames between a client or a name server and a broker, in one direction."""
        stranger = self._rng.choice([*self._clients, *self._name_servers]).name
        ends = [stranger, self._rng.choice(self._nodes).name]
        self._rng.shuffle(ends)
        return self._garble(*ends)

    def _garble(self, source: NodeId, target: NodeId) -> str:
        self._tcp.garble(source, target, self._rng.randint(1, _GARBLED_COUNT_MAX), self._rng)
        self._heal_later(partial(self._tcp.leave, source, target))
        return f"{source}->{target}"

    def _cut_client(self) -> str | None:
        """Cut a client from some or all brokers, in one direction or both."""
        return self._cut_off(self._rng.choice(self._clients).name)

    def _cut_name_server(self) -> str | None:
        return self._cut_off(self._rng.choice(self._name_servers).name)

    def _cut_off(self, machine: NodeId) -> str | None:
        count = self._rng.randint(1, len(self._nodes))
        brokers = [node.name for node in self._rng.sample(list(self._nodes), count)]
        there = [(machine, broker) for broker in brokers]
        back = [(broker, machine) for broker in brokers]
        return self._cut(self._rng.choice((there, back, there + back)))
