"""Systems: what a cluster under test is made of, and how it is started, killed and queried.

Place in the data path: one of the two halves of a world (`chaos.worlds.world`); the other half is
its links. The experiment starts and stops a System; faults act on its parts.

A system consists of parts that another one may lack: processes of its own, stores that can be
edited, failpoints, clocks, members, settings. A part that is None leaves out, by name, the faults
that need it, before the experiment begins.

Names are process names of `chaos.cluster.layout` (broker-a-n0, namesrv-0).

Invariants: a state is queried past every proxy, so a cut link never hides a node from the
laboratory; no answer is None, never an invented status.

Source: docs/DESIGN.md section 7 (worlds).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.layout import ClusterLayout

__all__ = [
    "Clocks",
    "Failpoints",
    "Members",
    "Part",
    "PointAction",
    "PointCounts",
    "Processes",
    "Releases",
    "Replacements",
    "Settings",
    "StoreFiles",
    "Stores",
    "System",
    "SystemFailedError",
]


class SystemFailedError(Exception):
    """The system could not carry out a request; the text says what and why."""


class Part(enum.Enum):
    """The part of a system that a fault needs."""

    PROCESSES = "processes of one's own"
    LIMITS = "limits of a process's resources"
    STORES = "stores that can be edited"
    POWER = "power that can fail"
    FAILPOINTS = "failpoints in the brokers"
    DISKS = "disks that can be made to fail"
    CLOCKS = "clocks that can be put wrong"
    MEMBERS = "members that can be changed"
    REPLACEMENTS = "nodes that can be replaced"
    REPAIRS = "peers that repair a damaged log"
    SETTINGS = "settings that can be changed"
    RELEASES = "an older release to start nodes with"


class Processes(Protocol):
    """The processes of brokers and name servers. Methods raise SystemFailedError."""

    async def kill(self, node: str) -> None:
        """Send SIGKILL: no flush, no notice to peers. The process is gone on return."""

    async def terminate(self, node: str, *, timeout_s: float) -> bool:
        """Send SIGTERM and await the end; False where it took SIGKILL after `timeout_s`."""

    async def restart(self, node: str) -> None:
        """Start a node that is gone. Returns before the node serves."""

    async def pause(self, node: str) -> None: ...

    async def resume(self, node: str) -> None: ...

    def state(self, node: str) -> str:
        """Return the state letter of proc(5) ("T": stopped), or "gone"."""

    def pid(self, node: str) -> int | None:
        """Return the process id, None where it is gone or not of this host."""

    def has_opened_store(self, node: str) -> bool | None:
        """Return whether the process has opened its store; None where it can't be seen."""


class StoreFiles(Protocol):
    """The files of one node's store, to be edited while its process is gone.

    Names are relative to the store, with "/". Methods raise OSError.
    """

    def names(self) -> list[str]:
        """Return the names of all files, sorted; no directories. Empty where there is no store."""

    def size(self, name: str) -> int: ...

    def read(self, name: str, offset: int, size: int) -> bytes: ...

    def write(self, name: str, offset: int, data: bytes) -> None: ...

    def truncate(self, name: str, size: int) -> None: ...

    def remove(self, name: str) -> None: ...

    def copy_all(self) -> Mapping[str, bytes]:
        """Return all files with their contents, for `restore_all` of this or another node."""

    def restore_all(self, files: Mapping[str, bytes]) -> None:
        """Remove every file and write these."""


class Stores(Protocol):
    def files(self, node: str) -> StoreFiles: ...

    async def lose_unsynced(self, node: str) -> str | None:
        """Undo writes of the killed node that no fsync had covered, as a power failure does.

        Return what was lost, for the evidence; None where this system can't tell such writes.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PointCounts:
    """How often a failpoint was reached, its action carried out, and who waits there now.

    `actions`: the names of the actions that the point can have.
    """

    reached: int
    fired: int
    waiting: int
    actions: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointAction:
    """Effect of a point.

    `action`: "crash", "delay", "stuck", "error", "lie" (an fsync that does nothing) or "short"
    (half of a write). It is carried out at most `count` times (0: always), not at the first `after`
    times that the point is reached, and then at a `share` of the times.
    """

    action: str
    ms: int = 0
    errno: str = ""
    count: int = 0
    after: int = 0
    share: float = 1.0


class Failpoints(Protocol):
    """Named points in a broker at which it can be made to fail. Raises SystemFailedError."""

    async def arm(self, node: str, point: str, action: PointAction) -> None: ...

    async def disarm(self, node: str, point: str) -> None: ...

    async def counts(self, node: str) -> Mapping[str, PointCounts] | None:
        """Return the counts of every point; None where the node does not answer."""


class Clocks(Protocol):
    """The wall clocks of nodes, each apart. Raises SystemFailedError."""

    async def put(
        self, node: str, *, offset_ms: int, drift_ppm: int = 0, strobe_ms: int = 0
    ) -> None:
        """Let the wall clock be off by `offset_ms` from now on, and drift from there.

        With `strobe_ms` it is off in every second interval of that length only.
        """

    async def offset_ms(self, node: str) -> int | None:
        """Return by how much the node itself says that its wall clock is off; None: no answer."""


class Members(Protocol):
    """Changes of a group's members. Raises SystemFailedError."""

    async def add(self, group: str, *, voter: bool) -> str:
        """Start a new node and add it; return its process name once it is a member."""

    async def promote(self, node: str) -> None:
        """Make a learner a voter, once it has caught up."""

    async def remove(self, node: str) -> None:
        """Remove the node from its group, then stop its process; its place is the next spare."""

    async def transfer(self, group: str, node: str) -> None:
        """Let the leader hand leadership to `node`."""

    async def members(self, group: str) -> Sequence[str]:
        """Return the process names of the group's voters, as its leader knows them."""

    async def learners(self, group: str) -> Sequence[str]:
        """Return those of its learners."""


class Replacements(Protocol):
    """Nodes whose disk was lost, brought back. Raises SystemFailedError."""

    @property
    def starts_empty(self) -> bool:
        """Whether a node may be started on an empty store before it is replaced: it then takes part
        in nothing."""

    async def replace(self, node: str, statuses: Mapping[str, BrokerStatus]) -> None:
        """Bring a node back whose store is empty, as an operator does.

        `statuses`: the last answers of all nodes, by process name.
        """


class Settings(Protocol):
    """Settings of running brokers and of their next start. Raises SystemFailedError."""

    async def update(self, node: str, values: Mapping[str, str]) -> None:
        """Change settings of the running broker."""

    async def read(self, node: str) -> Mapping[str, str] | None:
        """Return the broker's settings as it answers them; None where it does not answer."""

    def at_next_start(self, node: str, values: Mapping[str, int | bool | str] | None) -> None:
        """Let the node start with these settings from now on; None: with the scenario's again."""


class Releases(Protocol):
    """An older release of the system, which single nodes can be started with. Raises
    SystemFailedError."""

    @property
    def older(self) -> str:
        """The older release as it was asked for, for the evidence."""

    def at_next_start(self, node: str, *, older: bool) -> None:
        """Let the node start with the older release, or with the system's own, from now on."""

    async def answered(self, node: str) -> str | None:
        """Return what the node itself says that it runs ("unnamed" where it says nothing of it);
        None: no answer."""


class System(Protocol):
    """One cluster under test. Methods raise SystemFailedError unless they say otherwise."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def dedupes(self) -> bool:
        """Whether a retry with the same UNIQ_KEY is stored once within the scenario's window."""

    @property
    def layout(self) -> ClusterLayout: ...

    @property
    def run(self) -> Path:
        """The run directory, with stores and outputs."""

    @property
    def processes(self) -> Processes | None: ...

    @property
    def stores(self) -> Stores | None: ...

    @property
    def failpoints(self) -> Failpoints | None: ...

    @property
    def clocks(self) -> Clocks | None: ...

    @property
    def members(self) -> Members | None: ...

    @property
    def replacements(self) -> Replacements | None: ...

    @property
    def settings(self) -> Settings | None: ...

    @property
    def releases(self) -> Releases | None: ...

    @property
    def parts(self) -> frozenset[Part]:
        """The parts that are there."""

    async def start(self, dial: Mapping[str, Mapping[str, str]]) -> None:
        """Start everything and wait until each group has a ready leader.

        `dial`: by process name, table address = the address really dialled.
        """

    async def stop(self) -> None:
        """Stop the brokers cleanly, then all else. Every store is complete when it returns."""

    async def abort(self) -> None:
        """Leave nothing running, whatever state the system is in. Safe to call at any time."""

    async def status(self, node: str) -> BrokerStatus | None: ...
