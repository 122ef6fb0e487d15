"""RocketMQ's brokers and name servers as processes of this host.

Place in the data path: a world starts it with the dial tables of its links;
`chaos.cluster.processes` runs the processes in the run directory.

It has processes of its own and no other part: a store could be edited, but RocketMQ's brokers have
no failpoints, one clock with the host, and members that only their configurations name.

Invariants: brokers register and publish their own addresses; status is requested past every proxy;
`abort` leaves no process, and neither does the death of this one.

Source: RocketMQ's BrokerStartup and NamesrvStartup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.cluster.processes import ProcessError
from chaos.cluster.rocketmq_layout import mode_of
from chaos.systems.base import Part, SystemFailedError
from chaos.systems.ledgermq import LedgermqProcesses
from chaos.systems.ledgermq_parts import Inside, on_this_host
from chaos.systems.rocketmq.jars import RocketmqJarsError, require_jars, require_java
from chaos.systems.rocketmq.launch import (
    LABORATORY,
    JavaTuning,
    broker_argv,
    name_server_argv,
    write_files,
)
from chaos.systems.rocketmq.status import StatusReader, send_master
from chaos.systems.stopping import stop_processes
from remoting.connections.rpc import RemotingClient

__all__ = ["RocketmqProcesses", "RocketmqSystem"]

# A broker alone starts in about 10 s and stops in 5; several share two processors with much else.
READY_TIMEOUT_S: Final = 480.0
STOP_TIMEOUT_S: Final = 60.0
ABORT_TIMEOUT_S: Final = 3.0
STATUS_TIMEOUT_MS: Final = 3_000
FIRST_STATUS_TIMEOUT_MS: Final = 8_000  # of a broker that has just started, among others
POLL_S: Final = 0.2


class RocketmqProcesses(LedgermqProcesses):
    """The processes, by their names in the layout, as Java runs them."""

    def __init__(
        self,
        run: Path,
        layout: ClusterLayout,
        *,
        java: str,
        jars: Path,
        tuning: JavaTuning,
        inside: Inside,
    ) -> None:
        super().__init__(run, layout, inside=inside)
        self._tuning = tuning
        self._java = java
        self._jars = jars

    def _argv(self, node: str) -> list[str]:
        program = name_server_argv if node in self._name_servers else broker_argv
        return program(self._run, node, java=self._java, jars=self._jars, tuning=self._tuning)


class RocketmqSystem:
    """One cluster in one run directory."""

    name: Final = "rocketmq"
    dedupes: Final = False
    parts: Final = frozenset({Part.PROCESSES})
    stores: Final = None
    failpoints: Final = None
    clocks: Final = None
    members: Final = None
    replacements: Final = None
    settings: Final = None
    releases: Final = None

    def __init__(
        self,
        run: Path,
        layout: ClusterLayout,
        *,
        version: str,
        tuning: JavaTuning = LABORATORY,
        inside: Inside = on_this_host,
    ) -> None:
        """Find the release. `inside`: where its processes run.

        Raises SystemFailedError where it can't be run on this machine.
        """
        self.run: Final = run
        self.layout: Final = layout
        self.version: Final = version
        try:
            java, jars = require_java(), require_jars(self.version)
        except RocketmqJarsError as error:
            raise SystemFailedError(str(error)) from error
        self._tuning = tuning
        self.processes: Final = RocketmqProcesses(
            run, layout, java=java, jars=jars, tuning=tuning, inside=inside
        )
        self._statuses = RemotingClient()
        self._reader = StatusReader(self._statuses)
        self._dial: Mapping[str, Mapping[str, str]] = {}
        self._sent_master: dict[str, int] = {}  # by slave, the pid of the process that was told

    async def start(self, dial: Mapping[str, Mapping[str, str]]) -> None:
        self._dial = dial
        try:
            write_files(self.run, self.layout, dial, self._tuning)
            for name in self._names():
                await self.processes.restart(name)
            await self._await_ready()
        except ProcessError as error:
            raise SystemFailedError(f"the cluster did not start: {error}") from error

    async def stop(self) -> None:
        await stop_processes(
            self.processes.table,
            self.layout,
            timeout_s=STOP_TIMEOUT_S,
            disconnect=self._disconnect,
        )

    async def abort(self) -> None:
        await self._disconnect()
        table = self.processes.table
        await asyncio.to_thread(table.stop, table.names(), timeout_s=ABORT_TIMEOUT_S)

    async def _disconnect(self) -> None:
        await self._reader.close()
        await self._statuses.close()

    async def status(self, node: str) -> BrokerStatus | None:
        return await self._status(node, STATUS_TIMEOUT_MS)

    async def _status(self, node: str, timeout_ms: int) -> BrokerStatus | None:
        place = self.layout.broker(node)
        pid = self.processes.pid(node)
        if pid is None:
            return None
        status = await self._reader.status(
            place, self.layout.store_directory(self.run, place), pid=pid, timeout_ms=timeout_ms
        )
        if status is not None and self._sent_master.get(node) != pid:
            await self._send_its_master(place, pid)
        return status

    async def _send_its_master(self, place: BrokerPlace, pid: int) -> None:
        """Send a slave of RocketMQ 5 whom to copy from, once it answers.

        It loses the haMasterAddress of its configuration, which it reads before it has a client for
        it (BrokerController.initialize, DefaultMessageStore.start), and then asks no name server.
        """
        mode = mode_of(self.layout.engine)
        master = self.layout.groups[place.group][0]
        assert mode is not None
        if mode.is_dledger or mode.has_controllers or place == master:
            self._sent_master[place.name] = pid
            return
        address = self._dial.get(place.name, {}).get(master.raft_address, master.raft_address)
        if await send_master(
            self._statuses,
            place.address,
            master=master.address,
            replication=address,
            timeout_ms=STATUS_TIMEOUT_MS,
        ):
            self._sent_master[place.name] = pid

    def _names(self) -> list[str]:
        servers = [server.name for server in self.layout.name_servers]
        return servers + [place.name for place in self.layout.brokers]

    async def _await_ready(self) -> None:
        """Wait until each node answers and each group has a ready leader."""
        deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_S
        while True:
            for name in self._names():
                if self.processes.pid(name) is None:
                    tail = self.processes.table.output_tail(name)
                    raise SystemFailedError(f"{name} ended at its start:\n{tail}")
            names = [place.name for place in self.layout.brokers]
            answers = await asyncio.gather(
                *(self._status(name, FIRST_STATUS_TIMEOUT_MS) for name in names)
            )
            led = {answer.group for answer in answers if answer is not None and answer.ready}
            if None not in answers and led == set(self.layout.groups):
                return
            if asyncio.get_running_loop().time() >= deadline:
                silent = [n for n, answer in zip(names, answers, strict=True) if answer is None]
                raise SystemFailedError(
                    f"not ready after {READY_TIMEOUT_S:.0f} s: no answer from"
                    f" {', '.join(silent) or 'none'}, no leader in"
                    f" {', '.join(sorted(set(self.layout.groups) - led)) or 'none'}"
                )
            await asyncio.sleep(POLL_S)
