"""Carry out a schedule of faults: on which node, and for how long.

Place in the data path: acts on nodes, network and disks of a `cluster`, of bare cores or of whole
processes, through the scheduler, as `schedule` lists it; ends when it is told to heal, and then
ends every fault.

Each fault is a method named like its entry in `core_options.FAULTS`; faults overlap freely, all
nodes may be down at once. A crash leaves a node down for a time that may be next to nothing. A
fault draws from its own generator (`schedule`), a restart from one of its node and incarnation.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from chaos.sim.machine.disk import TAIL_REMOVAL, DiskFault, SimDisk, Survival
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.trace import Trace
from chaos.sim.seed.coverage import Coverage
from chaos.sim.seed.schedule import Fault, Schedule
from raft.messages import NodeId, Term

__all__ = ["FaultNetwork", "FaultTimes", "Nemesis", "Target"]


class Target(Protocol):
    """A node on which faults are injected."""

    name: NodeId
    incarnation: int
    step_fuse: int
    fuse_is_power: bool
    sync_slow_us: int

    @property
    def paused(self) -> bool: ...

    @property
    def disk(self) -> SimDisk: ...

    @property
    def alive(self) -> bool: ...

    @property
    def leads(self) -> bool: ...

    @property
    def term(self) -> Term: ...

    def start(self) -> None: ...

    def crash(self, *, power: bool, survival: Survival) -> None: ...

    def draw_survival(self) -> Survival: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def transfer(self, target: NodeId) -> None: ...

    def peer_unreachable(self, peer: NodeId) -> None: ...


class FaultNetwork(Protocol):
    """A network whose links between any two machines can break."""

    def cut(self, source: NodeId, target: NodeId, /) -> None: ...

    def heal(self, source: NodeId, target: NodeId, /) -> None: ...

    def slow(self, source: NodeId, target: NodeId, delay_us: int, /) -> None: ...

    def reset(self, source: NodeId, target: NodeId, /) -> None: ...

    def reset_node(self, node: NodeId, /) -> None: ...


class FaultTimes(Protocol):
    """The options of a seed that say how long faults last."""

    @property
    def election_timeout_ms_max(self) -> int: ...

    @property
    def fault_duration_us_max(self) -> int: ...

    @property
    def restart_us_max(self) -> int: ...

    @property
    def opening_failure_rate(self) -> float:
        """Share of starts in the middle of which the node dies, or gets an error."""


_N = TypeVar("_N", bound=Target)

_SYNC_FAILS = DiskFault(operation="sync", error=errno.EIO)
_SYNC_FAILS_RATE = 0.3
_DISK_FAULTS = (
    DiskFault(operation="write", error=errno.ENOSPC),
    DiskFault(operation="truncate", error=errno.ENOSPC),
    DiskFault(operation="write", error=errno.EIO),
    DiskFault(operation="read", error=errno.EIO),
    DiskFault(operation="allocate", error=errno.ENOSPC),
    DiskFault(operation="allocate", error=errno.EIO),
    _SYNC_FAILS,
    DiskFault(operation="open", error=errno.EIO),
    DiskFault(operation="rename", error=errno.EIO),
)
_CUT_OPERATIONS_MAX = 8  # three for each segment
_FUSES_AFTER = (None, None, None, "remove", "remove", "rename", "open", "truncate")
# An opening takes from 30 operations to some hundreds, and writes in the second half of them.
_OPENING_OPERATIONS_MAX = (12, 40, 120, 400, 1_000)
_FUSES_IN_OPENING = (None, None, "write", "truncate", "rename", "remove")
_OPENING_ERROR_RATE = 0.2
_DIES_AGAIN_RATE = 0.5


class Nemesis(Generic[_N]):
    def __init__(
        self,
        *,
        times: FaultTimes,
        schedule: Schedule,
        nodes: Sequence[_N],
        scheduler: Scheduler,
        network: FaultNetwork,
        coverage: Coverage,
        trace: Trace,
    ) -> None:
        self._times = times
        self._schedule = schedule
        self._nodes = nodes
        self._scheduler = scheduler
        self._network = network
        self._counts = coverage.counts
        self._trace = trace
        self._rng = random.Random()  # of the fault or restart under way
        self.running = False
        self._in_opening: set[NodeId] = set()  # nodes whose last start was disturbed
        self._faults: dict[str, Callable[[], str | None]] = {
            name: getattr(self, f"_{name}") for name in {fault.name for fault in schedule.faults}
        }
        self._heals: dict[int, Callable[[], None]] = {}
        self._heal_count = 0

    def start(self) -> None:
        self.running = True
        for fault in self._schedule.faults:
            self._scheduler.at(fault.at_us, partial(self._strike, fault))

    def stop(self) -> None:
        """Inject nothing more, and heal every fault; dead nodes stay dead."""
        self.running = False
        for number in list(self._heals):
            self._heal(number)
        for node in self._nodes:
            node.step_fuse = 0
            node.disk.fuse = 0
            node.disk.fuse_after = None
            node.disk.fault = None
            node.disk.fault_after = 0

    def on_death(self, node: _N) -> None:
        """Schedule the node's restart: before anybody noticed, or long after."""
        if self.running:
            rng = self._generator(f"restart/{node.name}/{node.incarnation}")
            delay_us = int(rng.random() ** 3 * self._times.restart_us_max)
            self._scheduler.after(delay_us, partial(self.restart, node, rng))

    def restart(self, node: _N, rng: random.Random) -> None:
        if node.alive or not self.running:
            return
        # A node that died in the middle of a start may die in the middle of the next one.
        rate = self._times.opening_failure_rate
        if node.name in self._in_opening:
            rate = max(rate, _DIES_AGAIN_RATE)
        if rng.random() < rate:
            self._in_opening.add(node.name)
            self._disturb_opening(node, rng)
        else:
            self._in_opening.discard(node.name)
        node.start()

    def _disturb_opening(self, node: _N, rng: random.Random) -> None:
        """Kill the node anywhere in its start, or between writes, or let its disk fail once."""
        if rng.random() < _OPENING_ERROR_RATE:
            self._counts["errors_armed_in_openings"] += 1
            node.disk.fault = rng.choice(_DISK_FAULTS)
            node.disk.fault_after = int(rng.random() * rng.choice((2, 5, 20)))
            return
        self._counts["crashes_armed_in_openings"] += 1
        node.fuse_is_power = rng.random() < 0.5
        node.disk.fuse_after = rng.choice(_FUSES_IN_OPENING)
        operations_max = 12 if node.disk.fuse_after else rng.choice(_OPENING_OPERATIONS_MAX)
        node.disk.fuse = 1 + int(rng.random() * operations_max)

    # --- drawing -------------------------------------------------------------------------------

    def _generator(self, what: str) -> random.Random:
        schedule = self._schedule
        return random.Random(f"{what}/{schedule.seed}/{schedule.kind}/{schedule.node_count}")

    def _strike(self, fault: Fault) -> None:
        if not self.running:
            return
        self._rng = self._generator(f"fault/{fault.number}")
        what = self._faults[fault.name]()
        if what is not None:
            self._counts[f"fault:{fault.name}"] += 1
            if self._trace.on:
                self._trace.add("nemesis", f"{fault.number} {fault.name} {what}")

    def _duration_us(self) -> int:
        return 1_000 + int(self._rng.random() * self._times.fault_duration_us_max)

    def _alive(self) -> _N | None:
        alive = [node for node in self._nodes if node.alive]
        return self._rng.choice(alive) if alive else None

    def _leader(self) -> _N | None:
        leaders = [node for node in self._nodes if node.leads]
        return max(leaders, key=lambda node: node.term) if leaders else None

    def _heal_later(self, heal: Callable[[], None]) -> None:
        self._heal_after(self._duration_us(), heal)

    def _heal_after(self, delay_us: int, heal: Callable[[], None]) -> None:
        self._heal_count += 1
        self._heals[self._heal_count] = heal
        self._scheduler.after(delay_us, partial(self._heal, self._heal_count))

    def _heal(self, number: int) -> None:
        heal = self._heals.pop(number, None)
        if heal is not None:
            heal()

    # --- crashes -------------------------------------------------------------------------------

    def _kill(self, node: _N | None, *, power: bool) -> str | None:
        if node is None:
            return None
        node.crash(power=power, survival=node.draw_survival())
        self.on_death(node)
        return node.name

    def _crash_process(self) -> str | None:
        return self._kill(self._alive(), power=False)

    def _crash_power(self) -> str | None:
        return self._kill(self._alive(), power=True)

    def _crash_leader(self) -> str | None:
        return self._kill(self._leader(), power=self._rng.random() < 0.6)

    def _crash_all(self) -> str | None:
        power = self._rng.random() < 0.7
        for node in self._nodes:
            if node.alive:
                self._kill(node, power=power)
        return f"power={power}"

    def _crash_at_step(self) -> str | None:
        """Kill the node between two effects, a few effects from now."""
        node = self._leader() if self._rng.random() < 0.5 else self._alive()
        if node is None:
            return None
        node.fuse_is_power = self._rng.random() < 0.7
        node.step_fuse = 1 + int(self._rng.random() ** 2 * 30)
        return f"{node.name} in {node.step_fuse}"

    def _crash_at_disk_operation(self) -> str | None:
        node = self._alive()
        if node is None:
            return None
        node.fuse_is_power = self._rng.random() < 0.7
        node.disk.fuse = 1 + int(self._rng.random() ** 2 * 25)
        node.disk.fuse_after = self._rng.choice(_FUSES_AFTER)
        if node.disk.fuse_after is not None:  # where a change of names is half done
            node.disk.fuse = 1 + node.disk.fuse // 8
        return f"{node.name} in {node.disk.fuse} after {node.disk.fuse_after or 'now'}"

    def _crash_in_cut(self) -> str | None:
        """Kill the next node that removes segments from the end of its log, in the middle of it."""
        nodes = [node for node in self._nodes if node.alive and not node.disk.fuse]
        for node in nodes:
            node.fuse_is_power = self._rng.random() < 0.5
            node.disk.fuse = 1 + int(self._rng.random() * _CUT_OPERATIONS_MAX)
            node.disk.fuse_after = TAIL_REMOVAL
        return " ".join(f"{node.name} in {node.disk.fuse}" for node in nodes) or None

    def _disk_error(self) -> str | None:
        node = self._alive()
        if node is None:
            return None
        node.disk.fault = self._rng.choice(_DISK_FAULTS)
        node.disk.fault_after = int(self._rng.random() ** 2 * 4)
        if self._rng.random() < _SYNC_FAILS_RATE:
            node.disk.fault = _SYNC_FAILS
        return f"{node.name} {node.disk.fault.operation} {errno.errorcode[node.disk.fault.error]}"

    # --- pauses, slowness ----------------------------------------------------------------------

    def _stop_for_a_while(self, node: _N | None) -> str | None:
        if node is None or node.paused:
            return None
        node.pause()
        incarnation = node.incarnation
        self._heal_later(partial(self._resume, node, incarnation))
        return node.name

    def _resume(self, node: _N, incarnation: int) -> None:
        if node.alive and node.paused and node.incarnation == incarnation:
            node.resume()

    def _pause(self) -> str | None:
        return self._stop_for_a_while(self._alive())

    def _pause_leader(self) -> str | None:
        return self._stop_for_a_while(self._leader())

    def _slow_disk(self) -> str | None:
        node = self._rng.choice(self._nodes)
        timeout_us = self._times.election_timeout_ms_max * 1000
        node.sync_slow_us = int(timeout_us * self._rng.choice((0.1, 0.5, 1.5)))
        self._heal_later(partial(setattr, node, "sync_slow_us", 0))
        return f"{node.name} {node.sync_slow_us}us"

    def _slow_link(self) -> str | None:
        sender, receiver = self._pair()
        delay_us = int(self._times.election_timeout_ms_max * 1000 * self._rng.random())
        self._network.slow(sender, receiver, delay_us)
        self._heal_later(partial(self._network.slow, sender, receiver, 0))
        return f"{sender}->{receiver} {delay_us}us"

    # --- the network ---------------------------------------------------------------------------

    def _pair(self) -> tuple[NodeId, NodeId]:
        sender, receiver = self._rng.sample([node.name for node in self._nodes], 2)
        return sender, receiver

    def _cut(self, links: Sequence[tuple[NodeId, NodeId]]) -> str:
        for sender, receiver in links:
            self._network.cut(sender, receiver)
        self._heal_later(partial(self._reconnect, links))
        return " ".join(f"{sender}->{receiver}" for sender, receiver in links)

    def _reconnect(self, links: Sequence[tuple[NodeId, NodeId]]) -> None:
        for sender, receiver in links:
            self._network.heal(sender, receiver)

    def _split(self, side: Sequence[NodeId]) -> str:
        others = [node.name for node in self._nodes if node.name not in side]
        return self._cut(
            [(a, b) for a in side for b in others] + [(b, a) for a in side for b in others]
        )

    def _isolate(self) -> str | None:
        return self._split([self._rng.choice(self._nodes).name])

    def _company(self, leader: _N, *, most: bool) -> list[NodeId]:
        """Draw followers that form a minority with the leader; with `most`, the largest one."""
        others = [node.name for node in self._nodes if node is not leader]
        count_max = max(0, (len(self._nodes) - 1) // 2 - 1)
        return self._rng.sample(others, count_max if most else self._rng.randint(0, count_max))

    def _isolate_leader(self) -> str | None:
        """Isolate the leader, alone or with a minority of followers."""
        leader = self._leader()
        if leader is None:
            return None
        return self._split([leader.name, *self._company(leader, most=False)])

    def _depose_and_return(self) -> str | None:
        """Isolate the leader with a minority, and return leadership to it later.

        The others elect another one meanwhile; when it leads again, messages of its first term may
        still be in flight.
        """
        leader = self._leader()
        if leader is None:
            return None
        others = [node.name for node in self._nodes if node is not leader]
        company = self._company(leader, most=True)
        side = [leader.name, *company]
        links = [(a, b) for a in side for b in others if b not in company]
        links += [(b, a) for a, b in links]
        for sender, receiver in links:
            self._network.cut(sender, receiver)
        timeout_us = self._times.election_timeout_ms_max * 1000
        heal_us = int(timeout_us * (1 + 2 * self._rng.random()))
        self._heal_after(heal_us, partial(self._reconnect, links))
        for delay_us in (timeout_us // 4, timeout_us // 2, timeout_us):
            self._scheduler.after(heal_us + delay_us, partial(self._hand_over, leader))
        return " ".join(side)

    def _hand_over(self, target: _N) -> None:
        leader = self._leader()
        if self.running and leader is not None and leader is not target:
            leader.transfer(target.name)

    def _halves(self) -> str | None:
        names = [node.name for node in self._nodes]
        return self._split(self._rng.sample(names, len(names) // 2))

    def _one_way(self) -> str | None:
        return self._cut([self._pair()])

    def _one_way_leader(self) -> str | None:
        """Cut the leader's links in one direction: it hears all, or is heard by all."""
        leader = self._leader()
        if leader is None:
            return None
        others = [node.name for node in self._nodes if node is not leader]
        if self._rng.random() < 0.5:
            return self._cut([(leader.name, other) for other in others])
        return self._cut([(other, leader.name) for other in others])

    def _bridge(self) -> str | None:
        """Split the nodes into two sides that only one node in between can talk to."""
        names = self._rng.sample([node.name for node in self._nodes], len(self._nodes))
        middle = len(names) // 2
        left, right = names[:middle], names[middle + 1 :]
        return self._cut(
            [(a, b) for a in left for b in right] + [(b, a) for a in left for b in right]
        )

    def _reset_link(self) -> str | None:
        sender, receiver = self._pair()
        self._network.reset(sender, receiver)
        return f"{sender}->{receiver}"

    def _reset_node(self) -> str | None:
        node = self._rng.choice(self._nodes)
        self._network.reset_node(node.name)
        return node.name

    # --- unnecessary requests ------------------------------------------------------------------

    def _transfer(self) -> str | None:
        leader = self._leader()
        if leader is None:
            return None
        target = self._rng.choice(self._nodes).name
        leader.transfer(target)
        return f"{leader.name} to {target}"

    def _false_alarm(self) -> str | None:
        """Notify a node of a broken connection to a healthy peer."""
        node, peer = self._rng.sample(list(self._nodes), 2)
        node.peer_unreachable(peer.name)
        return f"{node.name} about {peer.name}"
