"""The system of this project: brokers and name servers as processes of this host.

Place in the data path: a world starts it with the dial tables of its links;
`chaos.cluster.processes` runs the processes in the run directory.

Invariants: brokers register and publish their own addresses and dial peers and name servers through
their own table; status (request 60001) is requested past every proxy; `abort` leaves no process,
and neither does the death of this one.

Source: docs/DESIGN.md section 7.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chaos.cluster.access import access_of
from chaos.cluster.broker_status import BrokerStatus, query
from chaos.cluster.cluster import (
    ClusterError,
    await_ready,
    broker_process,
    name_server_process,
    write_directory,
)
from chaos.cluster.failpoints import enable
from chaos.cluster.layout import ClusterLayout
from chaos.cluster.processes import ProcessError, ProcessTable
from chaos.systems.base import Part, Replacements, SystemFailedError
from chaos.systems.ledgermq_failpoints import LedgermqClocks, LedgermqFailpoints
from chaos.systems.ledgermq_parts import (
    Inside,
    LedgermqMembers,
    LedgermqSettings,
    LedgermqStores,
    SharedLayout,
    on_this_host,
)
from chaos.systems.ledgermq_releases import LedgermqReleases, unpack_release
from chaos.systems.ledgermq_replacements import ReplacedMasters, ReplacedMembers
from chaos.systems.stopping import stop_processes

__all__ = ["LedgermqProcesses", "LedgermqSystem"]

POLL_S: Final = 0.01
STATE_CHANGE_S: Final = 5.0
STOP_TIMEOUT_S: Final = 15.0
ABORT_TIMEOUT_S: Final = 3.0
STATUS_TIMEOUT_MS: Final = 500
# A configured master has no peer that knows what its log should be.
_OF_ELECTIONS: Final = frozenset({Part.MEMBERS, Part.REPAIRS})
_OF_FAILPOINTS: Final = frozenset({Part.FAILPOINTS, Part.DISKS, Part.CLOCKS, Part.POWER})


class LedgermqProcesses:
    """The processes, by their names in the layout; `inside` says where each runs, `of_release`
    with which release."""

    def __init__(
        self,
        run: Path,
        layout: ClusterLayout,
        *,
        inside: Inside = on_this_host,
        of_release: Inside = on_this_host,
        ends_with_us: bool = True,
    ) -> None:
        self._run = run
        self._inside = inside
        self._of_release = of_release
        self._name_servers = {server.name for server in layout.name_servers}
        self.table: Final = ProcessTable(run, ends_with_us=ends_with_us)

    async def kill(self, node: str) -> None:
        await self._signal(node, signal.SIGKILL, {"gone"})

    async def terminate(self, node: str, *, timeout_s: float) -> bool:
        stopping = asyncio.create_task(
            asyncio.to_thread(self.table.stop, [node], timeout_s=timeout_s), name=f"stop {node}"
        )
        try:
            killed = await asyncio.shield(stopping)
        except asyncio.CancelledError:
            # The thread goes on. Who was cancelled heals next, and must not find a process running
            # that is about to end.
            with contextlib.suppress(ProcessError):
                await stopping
            raise
        except ProcessError as error:
            raise SystemFailedError(str(error)) from error
        return not killed

    async def restart(self, node: str) -> None:
        try:
            self.table.start(node, self.argv(node))
        except ProcessError as error:
            raise SystemFailedError(str(error)) from error

    async def pause(self, node: str) -> None:
        await self._signal(node, signal.SIGSTOP, {"T"})

    async def resume(self, node: str) -> None:
        await self._signal(node, signal.SIGCONT, {"S", "R", "D"})

    def state(self, node: str) -> str:
        try:
            return self.table.state(node)
        except ProcessError as error:
            raise SystemFailedError(str(error)) from error

    def pid(self, node: str) -> int | None:
        try:
            process = self.table.find(node)
        except ProcessError as error:
            raise SystemFailedError(str(error)) from error
        return None if process is None else process.pid

    def has_opened_store(self, node: str) -> bool | None:
        """The `lock` of its store is open from before it reads the store on."""
        pid = self.pid(node)
        return None if pid is None else _has_open(pid, "lock")

    def argv(self, node: str) -> list[str]:
        """Return the command line of the node's process."""
        return self._inside(node, self._of_release(node, self._argv(node)))

    def _argv(self, node: str) -> list[str]:
        program = name_server_process if node in self._name_servers else broker_process
        return program(self._run, node)

    async def _signal(self, node: str, number: signal.Signals, states: set[str]) -> None:
        """Send the signal and wait until the process state shows its effect."""
        try:
            self.table.signal(node, number)
        except ProcessError as error:
            raise SystemFailedError(str(error)) from error
        deadline = asyncio.get_running_loop().time() + STATE_CHANGE_S
        while (state := self.state(node)) not in states:
            if asyncio.get_running_loop().time() >= deadline:
                raise SystemFailedError(f"{node} is still in state {state} after {number.name}")
            await asyncio.sleep(POLL_S)


class LedgermqSystem:
    """One cluster in one run directory."""

    name: Final = "ledgermq"
    dedupes: Final = True
    all_parts: Final = frozenset(Part)

    def __init__(
        self,
        run: Path,
        layout: ClusterLayout,
        *,
        ends_with_us: bool = True,
        traces: bool = True,
        failpoints: bool = False,
        inside: Inside = on_this_host,
        release: str = "",
    ) -> None:
        """Describe it. `ends_with_us`: its processes end with this one, however this one ends;
        `traces`: brokers that are started later write Raft traces, as the first ones do;
        `failpoints`: brokers are started with failpoints, which power and clocks need too;
        `inside`: where its processes run; `release`: the older one that nodes can be started with,
        a folder or a commit (`chaos.systems.ledgermq_releases`). Raises LayoutError where an
        account can't be read, SystemFailedError where the release can't be."""
        self.run: Final = run
        self._shared = SharedLayout(run, layout, traces=traces, inside=inside)
        self.releases: Final = self._releases_of(release) if release else None
        self.processes: Final = LedgermqProcesses(
            run,
            layout,
            inside=inside,
            of_release=on_this_host if self.releases is None else self.releases.command,
            ends_with_us=ends_with_us,
        )
        self.version: Final = importlib.metadata.version("ledgermq")
        self._statuses = access_of(layout).client()
        self.failpoints: Final = (
            LedgermqFailpoints(lambda: self.layout, lambda: self._statuses) if failpoints else None
        )
        self.clocks: Final = (
            LedgermqClocks(run, lambda: self.layout, lambda: self._statuses) if failpoints else None
        )
        self.stores: Final = LedgermqStores(self._shared, failpoints=failpoints)
        members = LedgermqMembers(self._shared, self.processes.table)
        self.members: Final = None if layout.has_masters else members
        self.replacements: Final[Replacements] = (
            ReplacedMasters(self._shared, self.processes)
            if layout.has_masters
            else ReplacedMembers(self._shared, members)
        )
        lacks = set() if failpoints else set(_OF_FAILPOINTS)
        if self.releases is None:
            lacks.add(Part.RELEASES)
        if layout.has_masters:
            lacks |= _OF_ELECTIONS
        self.parts: Final = self.all_parts - lacks
        self.settings: Final = LedgermqSettings(self._shared, lambda: self._statuses)

    def _releases_of(self, name: str) -> LedgermqReleases:
        source = unpack_release(name, self.run / "release")
        return LedgermqReleases(name, source, lambda: self.layout, lambda: self._statuses)

    @property
    def layout(self) -> ClusterLayout:
        """The layout with the members that the groups have now."""
        return self._shared.now

    async def start(self, dial: Mapping[str, Mapping[str, str]]) -> None:
        layout, table = self.layout, self.processes.table
        self._shared.dial = dial
        try:
            write_directory(self.run, layout, dial)
            if self.failpoints is not None:
                enable(self.run)
            for server in layout.name_servers:
                table.start(server.name, self.processes.argv(server.name))
            for place in layout.brokers:
                table.start(place.name, self.processes.argv(place.name))
            await await_ready(table, layout)
        except (ClusterError, ProcessError) as error:
            raise SystemFailedError(f"the cluster did not start: {error}") from error

    async def stop(self) -> None:
        await stop_processes(
            self.processes.table,
            self.layout,
            timeout_s=STOP_TIMEOUT_S,
            disconnect=self._statuses.close,
        )

    async def abort(self) -> None:
        await self._statuses.close()
        table = self.processes.table
        await asyncio.to_thread(table.stop, table.names(), timeout_s=ABORT_TIMEOUT_S)

    async def status(self, node: str) -> BrokerStatus | None:
        address = self.layout.broker(node).address
        return await query(self._statuses, address, timeout_ms=STATUS_TIMEOUT_MS)


def _has_open(pid: int, name: str) -> bool:
    """Return whether the process has a file of that name open."""
    try:
        return any(link.readlink().name == name for link in Path(f"/proc/{pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):  # an fd that was closed, a process that ended
        return False
