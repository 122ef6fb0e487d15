"""Failpoints of brokers as the laboratory uses them: armed, disarmed, counted; clocks; power.

Place in the data path: faults of `chaos.nemesis` and `ledgermq failpoints` ask a broker by its own
address, past every proxy. A cluster has failpoints where its directory holds a folder `failpoints`
(`enable`): its brokers are then started with them, and DIR/failpoints/<process>.json says what is
armed at a start, for points that a start passes before it can be sent anything.

Invariants: a refused or unanswered order raises, so that no probe takes it for done; counts are of
one process, and begin anew with each start: compare `pid` where that matters. A power failure is
taken from a store only while nobody has it open.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from broker.failpoints.orders import (
    Action,
    Arming,
    ClockSetting,
    Order,
    OrderError,
    PointReport,
    Report,
    decode_order,
)
from broker.failpoints.undo_journal import Lost
from broker.failpoints.undo_journal import lose_unsynced as undo_unsynced
from chaos.cluster.access import access_of
from chaos.cluster.cluster import FAILPOINTS, ClusterError, load_layout
from chaos.cluster.processes import ProcessTable
from raft.store.store_lock import StoreLock, StoreLockedError
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = [
    "Action",
    "Arming",
    "ClockSetting",
    "FailpointError",
    "Hits",
    "Lost",
    "Order",
    "PointReport",
    "Report",
    "arm",
    "arm_at_start",
    "disarm",
    "disarm_at_start",
    "enable",
    "hits",
    "lose_unsynced",
    "lose_unsynced_of",
    "order",
    "order_node",
    "put_clock",
    "put_clock_at_start",
    "report",
]

TIMEOUT_MS = 3_000
PATIENCE_S = 5.0
_POLL_S = 0.02


class FailpointError(Exception):
    """A broker refused an order or did not answer it; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """How often a point was passed, how often it fired, how many are held up there now."""

    hits: int
    fired: int
    waiting: int


async def report(client: RemotingClient, address: str) -> Report:
    """Return the state of all points of a broker. Raises FailpointError."""
    return await order(client, address, Order())


async def arm(client: RemotingClient, address: str, *armings: Arming) -> Report:
    """Arm points, all or none. Raises FailpointError."""
    return await order(client, address, Order(arm=list(armings)))


async def disarm(client: RemotingClient, address: str, *points: str) -> Report:
    """Disarm points, all of them without a name; whoever is stuck goes on. Raises
    FailpointError."""
    return await order(client, address, Order(disarm=list(points) or ["*"]))


async def hits(client: RemotingClient, address: str, point: str) -> Hits:
    """Return the counts of a point since its process began. Raises FailpointError."""
    for each in (await report(client, address)).points:
        if each.name == point:
            return Hits(hits=each.hits, fired=each.fired, waiting=each.waiting)
    raise FailpointError(f"{address} has no failpoint {point!r}")


async def put_clock(client: RemotingClient, address: str, setting: ClockSetting) -> Report:
    """Put a broker's wall clock wrong; ClockSetting() is right again. Raises FailpointError."""
    return await order(client, address, Order(clock=setting))


async def order(client: RemotingClient, address: str, wanted: Order) -> Report:
    """Give an order. Raises FailpointError; where there was no answer, it may be in force."""
    command = RemotingCommand(
        code=RequestCode.LEDGERMQ_FAILPOINTS, body=msgspec.json.encode(wanted)
    )
    try:
        answer = await client.request(address, command, TIMEOUT_MS)
    except RemotingError as error:
        raise FailpointError(f"{address}: {error}") from error
    if answer.code != ResponseCode.SUCCESS:
        raise FailpointError(f"{address}: {answer.remark}")
    try:
        return msgspec.json.decode(answer.body, type=Report)
    except msgspec.DecodeError as error:
        raise FailpointError(f"{address}: not a report: {error}") from error


async def order_node(directory: Path, name: str, wanted: Order) -> Report:
    """Give an order to a process of a cluster, over a connection of its own.

    Raises FailpointError, ClusterError, LayoutError.
    """
    layout = load_layout(directory)
    if name not in {place.name for place in layout.brokers}:
        raise ClusterError(f"{name} is no broker: only brokers have failpoints")
    client = access_of(layout).client()
    try:
        return await order(client, layout.broker(name).address, wanted)
    finally:
        await client.close()


def enable(directory: Path) -> None:
    """Let brokers of the cluster in `directory` be started with failpoints from now on."""
    (directory / FAILPOINTS).mkdir(parents=True, exist_ok=True)


def arm_at_start(directory: Path, name: str, armings: Sequence[Arming]) -> Path:
    """Arm points from the next start of a broker on, beside what is armed there already. Returns
    the file. Raises FailpointError where the cluster has no failpoints."""
    file = _file(directory, name)
    known = _at_start(file)
    points = {each.point for each in armings}
    retained = [each for each in known.arm if each.point not in points]
    _write(file, Order(arm=[*retained, *armings], clock=known.clock))
    return file


def disarm_at_start(directory: Path, name: str, points: Sequence[str] | None = None) -> None:
    """Leave these points unarmed at the next start, all of them without a name. Raises
    FailpointError."""
    file = _file(directory, name)
    known = _at_start(file)
    retained = [each for each in known.arm if points and each.point not in points]
    _write(file, Order(arm=retained, clock=known.clock))


def put_clock_at_start(directory: Path, name: str, setting: ClockSetting | None) -> None:
    """Let a broker's wall clock be wrong from its next start on, as a machine's that is set wrong
    stays; None: right. Raises FailpointError."""
    file = _file(directory, name)
    _write(file, Order(arm=_at_start(file).arm, clock=setting))


def lose_unsynced(
    store: Path, rng: random.Random | None = None, *, patience_s: float = PATIENCE_S
) -> Lost:
    """Take what no honest fsync covers from the store of a broker that was killed: with the kill
    this is a power failure. All of it without `rng`, else a random part of each file's.

    Blocks: call it from a thread in a loop. Raises OSError, StoreLockedError where a process has
    the store open; one that was killed lets go of it only when its last thread's fsync returns.
    """
    lock = _locked(store, patience_s)
    try:
        return undo_unsynced(store, rng)
    finally:
        lock.release()


def lose_unsynced_of(directory: Path, name: str, seed: int | None = None) -> Lost:
    """`lose_unsynced` for a broker of a cluster. Raises ClusterError and as that does."""
    layout = load_layout(directory.resolve())
    places = {place.name: place for place in layout.brokers}
    if name not in places:
        raise ClusterError(f"{name} is no broker: it has no store")
    if ProcessTable(directory.resolve()).find(name) is not None:
        raise ClusterError(f"{name} is running: only a killed broker loses what it wrote")
    store = layout.store_directory(directory.resolve(), places[name])
    return lose_unsynced(store, None if seed is None else random.Random(seed))


def _locked(store: Path, patience_s: float) -> StoreLock:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return StoreLock(store)
        except StoreLockedError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_S)


def _file(directory: Path, name: str) -> Path:
    folder = directory / FAILPOINTS
    if not folder.is_dir():
        raise FailpointError(f"{directory}: the cluster was started without --failpoints")
    return folder / f"{name}.json"


def _at_start(file: Path) -> Order:
    try:
        return decode_order(file.read_bytes())
    except FileNotFoundError:
        return Order()
    except OrderError as error:
        raise FailpointError(f"{file}: {error}") from error


def _write(file: Path, wanted: Order) -> None:
    draft = file.with_suffix(".tmp")
    draft.write_bytes(msgspec.json.encode(wanted))
    draft.replace(file)
