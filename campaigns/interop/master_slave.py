"""Groups on the engines `async` and `sync`, as targets: a master and a slave, one flush or another.

    ledgermq-ENGINE-FLUSH           a master and a slave
    ledgermq-ENGINE-FLUSH-kill      whose master is killed in the middle of the cases
    ledgermq-ENGINE-FLUSH-roles     where cases say themselves what happens to master and slave
    ledgermq-ENGINE-FLUSH-groups    three masters and their slaves, for RocketMQ's own tests

Place: `targets.py` starts them, `run.py` passes on to `Roles` what a case requests.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.failpoints.orders import Action, Arming, Order
from campaigns.rig.processes import Processes
from campaigns.rig.waiting import await_until
from chaos.cluster import failpoints
from chaos.cluster.failpoints import FailpointError
from remoting.connections.rpc import RemotingClient

__all__ = [
    "ENGINES",
    "FLUSHES",
    "GROUPS",
    "KILL",
    "MASTER_SLAVE_TARGETS",
    "MODES",
    "ROLES",
    "Mode",
    "Roles",
]

ENGINES: Final = ("sync", "async")
FLUSHES: Final = ("sync", "async")
REPLICAS: Final = 2
KILL: Final = "kill"
ROLES: Final = "roles"
GROUPS: Final = "groups"
IN_MEMORY_SIZE: Final = 256 << 10
"""What counts as in memory where cases say what happens: a consumer is slow after some messages."""
PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Mode:
    """How a group replicates and flushes, and what becomes of it in the cases ("" for nothing)."""

    engine: str
    flush: str
    kind: str = ""

    @property
    def target(self) -> str:
        return "-".join(part for part in ("ledgermq", self.engine, self.flush, self.kind) if part)


MODES: Final = {
    mode.target: mode
    for engine in ENGINES
    for flush in FLUSHES
    for kind in ("", KILL, ROLES, GROUPS)
    for mode in (Mode(engine, flush, kind),)
}
MASTER_SLAVE_TARGETS: Final = tuple(MODES)


class Roles:
    """A master and its slave, with failpoints, to which happens what a case requests."""

    breaks = False

    def __init__(self, mode: Mode, group: Processes) -> None:
        self.name = mode.target
        self._group = group
        self._master, *self._slaves = group.brokers
        self._paused: list[str] = []
        self._orders: dict[str, Callable[[], object]] = {
            "slave pause": self._pause,
            "slave resume": self.resume,
            "slave kill": partial(group.kill, *self._slaves),
            "slave start": partial(self._start, *self._slaves),
            "slave level": self._await_level,
            "mend": self._restore,
            "disk hold": partial(
                self._order,
                Order(arm=[Arming(point="disk.fsync", action=Action.STUCK, only="ha/commitlog/*")]),
            ),
            "disk release": partial(self._order, Order(disarm=["*"])),
            "master kill": partial(group.kill, self._master),
            "master start": partial(self._start, self._master),
        }

    @property
    def name_servers(self) -> list[str]:
        return self._group.name_servers

    def break_something(self) -> None:
        raise AssertionError("cases say themselves what is broken here")

    def carry_out(self, what: str) -> str:
        """Do what a case requests, and return its answer: where it can't be done, why. Raises
        KeyError for what nobody knows."""
        if what == "slave address":
            return self._group.place(self._slaves[0]).address
        try:
            self._orders[what]()
        except (AssertionError, FailpointError) as error:
            return f"failed: {error}"
        return "done"

    def _restore(self) -> None:
        """Leave nothing stopped, killed or held, whatever became of the case."""
        self.resume()
        for name in self._group.brokers:
            if self._group.table.find(name) is None:
                self._group.start_broker(name)
        self._await_level()
        self._order(Order(disarm=["*"]))

    def resume(self) -> None:
        """Let a paused slave go on."""
        paused, self._paused = self._paused, []
        for name in paused:
            self._group.table.signal(name, signal.SIGCONT)

    def _pause(self) -> None:
        self._paused = list(self._slaves)
        for name in self._paused:
            self._group.table.signal(name, signal.SIGSTOP)

    def _start(self, *names: str) -> None:
        for name in names:
            self._group.start_broker(name)

    def _await_level(self) -> None:
        """Wait until the slave is connected and has the master's log."""

        def is_level() -> bool:
            statuses = self._group.statuses()
            ends = {status.applied_index for status in statuses.values()}
            return (
                len(statuses) == REPLICAS
                and len(ends) == 1
                and all(status.leader is not None for status in statuses.values())
            )

        await_until(is_level, "the slave has the master's log", PATIENCE_S)

    def _order(self, wanted: Order) -> None:
        async def send_order() -> None:
            client = RemotingClient()
            try:
                await failpoints.order(client, self._group.place(self._master).address, wanted)
            finally:
                await client.close()

        asyncio.run(send_order())
