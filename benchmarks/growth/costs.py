"""What a broker group costs at one size: of a send, of a second without work, of a lost leader.

Place in the data path: `benchmarks.growth.__main__` measures a group of three after each fill.

Invariants: processor time is that of the leader's process, less what it takes without work; the
leader that is killed is the one that was measured, and the next size is measured once all replicas
have applied everything again.
"""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.cluster_throughput import load
from benchmarks.long_store import rss_mb
from benchmarks.rolling_restart import leader_when_whole
from chaos.cluster import cluster
from chaos.cluster.broker_status import query_all
from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.cluster.processes import ProcessTable

__all__ = ["Costs", "Group", "cpu_s"]

_WARM_S: Final = 1.0
_LOAD_S: Final = 4.0
_IDLE_S: Final = 3.0
_LEADER_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Figures of one size.

    `send_us`: processor microseconds of the leader for a message of 1 KiB, 64 in flight; `idle_ms`:
    processor milliseconds of it in a second without work; `memory_mb`: its resident MiB without
    mapped files; `failover_s`: from the kill of the leader until another one serves; `restart_s`:
    from the start of the killed one until it has applied what the others have.
    """

    send_us: float
    idle_ms: float
    memory_mb: int
    failover_s: float
    restart_s: float

    def row(self) -> dict[str, float]:
        return asdict(self)


def cpu_s(pid: int) -> float:
    """Return the processor seconds of a process's threads, to the nanosecond: those of
    /proc/PID/stat come in hundredths of a second."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


class Group:
    """A broker group of three in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._layout: ClusterLayout = cluster.load_layout(directory)
        self._table = ProcessTable(directory)

    async def leader(self) -> BrokerPlace:
        """Return the leader, once every replica has applied what it has."""
        return await leader_when_whole(self._layout)

    async def leader_address(self) -> str:
        return (await self.leader()).address

    async def costs(self) -> Costs:
        """Measure the group as it is; its leader is another one afterwards."""
        leader = await self.leader()
        process = self._table.find(leader.name)
        assert process is not None, leader.name
        pid = process.pid
        began, before = time.monotonic(), cpu_s(pid)
        await asyncio.sleep(_IDLE_S)
        idle = (cpu_s(pid) - before) / (time.monotonic() - began)
        memory = rss_mb(pid)["anonymous"]
        options = {"topic": "Bench", "queues": 4, "body_size": 1_024, "in_flight": 64, "batch": 1}
        await load(leader.address, **options, seconds=_WARM_S)
        began, before = time.monotonic(), cpu_s(pid)
        sent = await load(leader.address, **options, seconds=_LOAD_S)
        used = cpu_s(pid) - before - idle * (time.monotonic() - began)
        failover_s = await self._kill(leader)
        restart_s = await self._restart(leader)
        return Costs(
            send_us=round(used / max(1, sent.messages) * 1e6, 1),
            idle_ms=round(idle * 1_000, 1),
            memory_mb=memory,
            failover_s=round(failover_s, 2),
            restart_s=round(restart_s, 2),
        )

    async def _kill(self, leader: BrokerPlace) -> float:
        others = [place.address for place in self._layout.brokers if place != leader]
        began = time.monotonic()
        self._table.signal(leader.name, signal.SIGKILL)
        async with asyncio.timeout(_LEADER_TIMEOUT_S):
            while True:
                statuses = await query_all(others)
                if any(status.ready for status in statuses.values()):
                    break
                await asyncio.sleep(_POLL_S)
        return time.monotonic() - began

    async def _restart(self, killed: BrokerPlace) -> float:
        await asyncio.to_thread(self._table.stop, [killed.name])
        began = time.monotonic()
        argv = cluster.broker_process(self._directory, killed.name)
        await asyncio.to_thread(self._table.start, killed.name, argv)
        await self.leader()
        return time.monotonic() - began
