"""Processes at the end of what the kernel gives them: descriptors, memory, file sizes.

Place in the data path: as `chaos.nemesis.process.node_fault`; the limits are set on the running
process by prlimit(2), which needs its pid, and are put back by the heal. A process that ended by
its limit (fail-stop is a broker's right) is restarted without it.

Effect: out of descriptors, a new connection to the node is not answered; of memory and file size
the kernel's own account of the process: nothing more fits below the limit, or the process is gone.

Source: prlimit(2), proc(5) (status, fd); "greedy" clients of `campaigns.fuzz`.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final

from chaos.links.base import Link
from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.nemesis.process.node_fault import NodeFault, target_nodes
from chaos.systems.base import Part

__all__ = ["SPECS", "FullDisk", "OutOfDescriptors", "OutOfMemory"]

_PARTS: Final = frozenset({Part.PROCESSES, Part.LIMITS})
_TARGET: Final = {"target": ("leader", "follower", "any")}


class Limited(NodeFault):
    """Lowers the soft limit `kind` of one process to what it has now, and `headroom`."""

    kind: int = resource.RLIMIT_NOFILE

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, target_nodes)
        self._before: tuple[int, int] | None = None
        self._limit = 0
        self._pid = 0

    async def setup(self) -> None:
        await super().setup()
        pid = self._context.processes.pid(self._nodes[0])
        if pid is None:
            raise FaultNotPossibleError(f"{self._nodes[0]} is no process of this host")
        self._pid = pid

    def used(self) -> int:
        """Return how much of it the process has now. Raises OSError."""
        return len(list(Path(f"/proc/{self._pid}/fd").iterdir()))

    async def inject(self) -> None:
        self._limit = self.used() + int(self._context.params["headroom"]) * self.unit
        self._before = resource.prlimit(self._pid, self.kind)
        resource.prlimit(self._pid, self.kind, (self._limit, self._before[1]))

    unit: int = 1

    async def heal(self) -> None:
        if self._before is not None and self._is_the_same():
            resource.prlimit(self._pid, self.kind, self._before)
        await super().heal()

    async def probe_healed(self) -> Observation:
        if self._is_the_same() and self._before is not None:
            now = resource.prlimit(self._pid, self.kind)
            if now != self._before:
                return Observation(seen=False, evidence=f"the limit is {now[0]}")
        return await super().probe_healed()

    def _is_the_same(self) -> bool:
        """Return whether the limited process still runs."""
        return self._context.processes.pid(self._nodes[0]) == self._pid

    def _in_force(self) -> bool:
        return self._is_the_same() and resource.prlimit(self._pid, self.kind)[0] == self._limit


class OutOfDescriptors(Limited):
    """Leaves no descriptor for a new connection or file."""

    kind = resource.RLIMIT_NOFILE

    async def probe(self) -> Observation:
        node = self._nodes[0]
        if not self._is_the_same():
            return Observation(seen=True, evidence=f"{node} has ended")
        slots = self._context.world.client_slots
        if not slots:
            return Observation(seen=None, evidence="no client's link to try a connection on")
        link = Link(who=slots[0], whom=node)
        (probe,) = await self._context.links.probe([link])
        text = f"{self.used()} of {resource.prlimit(self._pid, self.kind)[0]} open; "
        text += f"a new connection: {probe.evidence}"
        if not self._in_force():
            return Observation(seen=False, evidence=text)
        return Observation(seen=None if probe.passes is None else not probe.passes, evidence=text)


class OutOfMemory(Limited):
    """Leaves `headroom` MiB of address space."""

    kind = resource.RLIMIT_AS
    unit = 1 << 20

    def used(self) -> int:
        text = Path(f"/proc/{self._pid}/statm").read_text(encoding="ascii")
        return int(text.split()[0]) * resource.getpagesize()

    async def probe(self) -> Observation:
        node = self._nodes[0]
        if not self._is_the_same():
            return Observation(seen=True, evidence=f"{node} has ended")
        used, unit = self.used(), self.unit
        text = f"{node}: {used // unit} MiB of address space, at most {self._limit // unit}"
        return Observation(seen=self._in_force() and used <= self._limit, evidence=text)


class FullDisk(Limited):
    """Lets no file grow beyond `headroom` KiB: writes fail as on a full disk, by EFBIG.

    Segments have their size from the start, so that what fails first is what is made anew.
    """

    kind = resource.RLIMIT_FSIZE
    unit = 1 << 10

    def used(self) -> int:
        return 0

    async def probe(self) -> Observation:
        node = self._nodes[0]
        if not self._is_the_same():
            return Observation(seen=True, evidence=f"{node} has ended by its limit")
        text = f"{node}: no file may grow beyond {self._limit} bytes, and it runs"
        return Observation(seen=None if self._in_force() else False, evidence=text)


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="out-of-descriptors",
        summary="a node may open no further file or connection",
        probe="a new connection to it is not answered, or it has ended",
        parts=_PARTS,
        make=OutOfDescriptors,
        seen_elsewhere="Redpanda",
        parameters={"target": "follower", "headroom": 0},
        choices=_TARGET,
    ),
    FaultSpec(
        name="out-of-memory",
        summary="a node gets no further address space, or headroom MiB of it",
        probe="the kernel holds its address space below the limit, or it has ended",
        parts=_PARTS,
        make=OutOfMemory,
        seen_elsewhere="Chaos Mesh, OpenChaos",
        parameters={"target": "follower", "headroom": 0},
        choices=_TARGET,
    ),
    FaultSpec(
        name="full-disk",
        summary="no file of a node may grow beyond headroom KiB: writes fail",
        probe="it has ended by its limit; unknown while it runs without a larger write",
        parts=_PARTS,
        make=FullDisk,
        seen_elsewhere="Jepsen, OpenChaos, Chaos Mesh",
        parameters={"target": "follower", "headroom": 64},
        choices=_TARGET,
    ),
)
