"""Damage every page of a replica's store in turn: does a group of real nodes heal?

Place in the data path: `tests/sim/test_every_damage.py` runs a part of the cases, the campaign
beside it all of them. Three `raft.node.node.RaftNode` with their transports and stores run on
virtual loops over simulated disks and TCP. A history is made once: entries of several terms, with
or without snapshots, with or without a tail that one node wrote alone and the group never saw. Each
case starts from copies of its disks, damages one place on one of them, starts all three nodes, and
waits.

Rules, each a Violation: no node raises; within HEAL_S all three serve, know of no damage, and
accept new entries; their logs are byte for byte the same; every replica has applied every
acknowledged entry, once and in order.

Source: Ganesan et al., "Redundancy Does Not Imply Fault Tolerance" (FAST '17), which damages every
block of every file of one replica in turn.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgpack

from chaos.sim.groups.machine import Machine, Site, calm_site
from chaos.sim.machine.disk import SimDisk
from chaos.sim.machine.violation import Violation
from chaos.sim.machine.virtual_stdlib import substituted
from raft.config import RaftConfig
from raft.log.segment_files import segment_path, segment_positions
from raft.messages import EntryKind, Index, NodeId
from raft.node.node import RaftNode
from raft.node.node_config import NodeConfig
from raft.replicated_log import CommittedEntry, LogStatus, Phase, ProposalResult, Slot

__all__ = ["HEAL_S", "Blow", "Case", "History", "Kind", "Plan", "cases", "make_history", "run_case"]

HEAL_S = 60
"""Virtual seconds: a dead member's timeout, elections, rounds of repair requests and of the scrub.
"""

_SEGMENT_SIZE = 1024
_SEGMENT_ENTRIES = 24  # more than one segment holds
_NAMES = tuple(NodeId(f"n{number}") for number in range(3))
_ADDRESSES = {name: f"10.8.0.{number}:1" for number, name in enumerate(_NAMES)}
_POLL_S = 0.05


class Kind(enum.Enum):
    """Kinds of damage to a page."""

    ZEROED = "zeroed"
    FLIPPED = "flipped"
    STALE = "stale"  # another page of the same file
    LOST = "lost"  # the whole file


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """One damage at one place; `start` and `end` are bytes of the file."""

    kind: Kind
    path: str
    start: int = 0
    end: int = 0

    def strike(self, disk: SimDisk) -> bool:
        """Damage the disk; return whether anything changed."""
        if self.kind is Kind.LOST:
            disk.lose(self.path)
            return True
        before = disk.content(self.path)
        after = bytearray(before)
        size = min(self.end, len(after)) - self.start
        match self.kind:
            case Kind.ZEROED:
                after[self.start : self.start + size] = bytes(size)
            case Kind.FLIPPED:
                after[self.start + size // 2] ^= 0x10
            case _:
                other = before[: self.start][-size:] or before[self.start + size :][:size]
                after[self.start : self.start + len(other)] = other
        disk.spoil(self.path, bytes(after))
        return bytes(after) != before


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a history is made.

    `snapshots`: one at each end of a segment. `tail`: the victim, a leader then, wrote entries that
    nobody else has; the others went on with fewer, or with more.
    """

    snapshots: bool
    tail: bool
    more_after_tail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    plan: Plan
    disks: Mapping[NodeId, SimDisk]
    victim: NodeId
    acknowledged: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One damage to one copy of a history.

    `sidecars`: the victim's sidecar files are kept. `online`: damaged while the node runs, not
    before its start.
    """

    blow: Blow
    sidecars: bool
    online: bool = False


class _State:
    """A state machine whose state is the list of everything it has applied."""

    needs_indexing = False

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.applied_index: Index = 0

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        for entry in entries:
            assert entry.index == self.applied_index + 1, "each once, in order"
            self.applied_index = entry.index
            if entry.kind is EntryKind.DATA:
                self.payloads.append(entry.payload)

    def on_role_change(self, status: LogStatus) -> None:
        """Do nothing: it serves no clients."""

    def capture(self) -> _Image:
        return _Image(index=self.applied_index, payloads=tuple(self.payloads))

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]:
        payloads: list[bytes] = msgpack.unpackb(b"".join(chunks))
        return partial(self._become, index, payloads)

    def _become(self, index: Index, payloads: list[bytes]) -> None:
        self.applied_index, self.payloads = index, payloads

    def index_only(self, entries: Sequence[CommittedEntry]) -> None:
        """Do nothing: no files are derived from entries."""

    def trim(self, position: int) -> None:
        """Do nothing: no files are derived from entries."""

    def sync_derived(self) -> None:
        """Do nothing: no files are derived from entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Image:
    index: Index
    payloads: tuple[bytes, ...]

    def encode(self) -> Iterator[bytes]:
        yield msgpack.packb(self.payloads)


class _NodeMachine(Machine):
    """A machine that runs one node over its disk."""

    def __init__(self, site: Site, name: NodeId, disk: SimDisk, root: Path, plan: Plan) -> None:
        super().__init__(site, name, _ADDRESSES[name].partition(":")[0], self._run)
        self.disk = disk
        self._config = NodeConfig(
            group="rotten",
            raft=RaftConfig(node_id=name, voters=_NAMES, log_cache_size_bytes_max=1),
            peers=_ADDRESSES,
            listen=_ADDRESSES[name],
            store=root / name,
            secret=b"a secret of the group",
            segment_size_bytes_max=_SEGMENT_SIZE,
            snapshot_interval_size_bytes=0 if plan.snapshots else 1 << 30,
            scrub_rate_bytes_per_s=1 << 30,
            scrub_interval_ms=200,
        )
        self.node: RaftNode | None = None
        self.state = _State()

    def equip(self, process: object) -> None:
        self.node = None

    async def _run(self) -> None:
        self.state = _State()
        node = RaftNode(self._config, self.state, disk=self.disk)
        await node.start()
        self.node = node
        try:
            raise await node.wait_failed()
        finally:
            await node.stop()

    @property
    def status(self) -> LogStatus | None:
        return self.node.status() if self.alive and self.node is not None else None

    @property
    def is_whole(self) -> bool:
        """Whether the node serves and knows of no damage."""
        status = self.status
        if status is None or status.phase is not Phase.SERVING:
            return False
        assert self.node is not None
        return not self.node._store.log.damages

    def crash(self) -> None:
        self.die(power=False)
        self.disk.process_crash()

    def log_bytes(self, begin: int, end: int) -> bytes:
        """Return the bytes of its log between two positions."""
        data = bytearray()
        for position in segment_positions(self.disk, "commitlog"):
            content = self.disk.content(segment_path("commitlog", position))
            if position + len(content) > begin and position < end:
                del data[max(0, position - begin) :]
                data += content[max(0, begin - position) : end - position]
        return bytes(data)


class _Group:
    """Three machines on one scheduler; within its context the product's clocks are simulated."""

    def __init__(self, plan: Plan, disks: Mapping[NodeId, SimDisk], first_number: int = 0) -> None:
        self._plan = plan
        self._disks = disks
        self._contexts = ExitStack()
        self._number = first_number  # of payloads
        self.acknowledged: list[bytes] = []

    def __enter__(self) -> _Group:
        root = Path(self._contexts.enter_context(tempfile.TemporaryDirectory()))
        self._contexts.enter_context(substituted())
        self.site = calm_site("rotten", traced=False)
        self.machines = {
            name: _NodeMachine(self.site, name, self._disks[name], root, self._plan)
            for name in _NAMES
        }
        return self

    def __exit__(self, *exc: object) -> None:
        for machine in self.machines.values():
            if machine.alive:
                machine.crash()
        self.site.scheduler.run_until(self.site.scheduler.now_us + 1000)
        self.site.bury()
        self._contexts.close()

    def start(self, *names: NodeId) -> None:
        for name in names:
            self.machines[name].start()

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for the condition; return whether it came true in time.

        Raises Violation if a node failed.
        """
        scheduler = self.site.scheduler
        until = scheduler.now_us + int(seconds * 1e6)
        while scheduler.now_us < until:
            if condition():
                return True
            scheduler.run_until(scheduler.now_us + int(_POLL_S * 1e6))
            if self.site.failures:
                raise self.site.failures[0]
        return condition()

    def demand(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        if not self.wait(condition, seconds):
            states = ", ".join(
                f"{name}: {machine.status and machine.status.phase.value} "
                f"{machine.node and [str(one) for one in machine.node._store.log.damages]}"
                for name, machine in self.machines.items()
            )
            raise Violation("liveness", f"not within {seconds} s: {what} ({states})")

    def leader(self) -> _NodeMachine | None:
        ready = [
            (machine.status.term, machine)
            for machine in self.machines.values()
            if machine.status is not None and machine.status.ready
        ]
        return max(ready, key=lambda one: one[0], default=(0, None))[1]

    def write(self, count: int) -> None:
        """Propose entries at the leader; acknowledged payloads are added to `acknowledged`."""
        self.demand(lambda: self.leader() is not None, 30, "a leader")
        machine = self.leader()
        assert machine is not None
        assert machine.process is not None
        payloads = [self._payload() for _ in range(count)]
        machine.process.run(partial(self._propose, machine, payloads))

    def _payload(self) -> bytes:
        self._number += 1
        return b"%05d" % self._number + bytes(7 * self._number % 60)

    def _propose(self, machine: _NodeMachine, payloads: list[bytes]) -> None:
        assert machine.node is not None
        for payload in payloads:
            future = machine.node.propose(partial(_fill, payload))
            future.add_done_callback(partial(self._note, payload))

    def _note(self, payload: bytes, future: asyncio.Future[ProposalResult]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.acknowledged.append(payload)

    def write_all(self, count: int) -> None:
        """Propose as `write`, and wait for the acknowledgements."""
        wanted = len(self.acknowledged) + count
        self.write(count)
        self.demand(lambda: len(self.acknowledged) >= wanted, 30, "acknowledgements")


def make_history(plan: Plan) -> History:
    disks = {name: SimDisk(random.Random(number)) for number, name in enumerate(_NAMES)}
    with _Group(plan, disks) as group:
        group.start(*_NAMES)
        for _ in range(3):  # of several terms
            group.write_all(9)
            group.wait(lambda: False, 1.5)  # checkpoints, snapshots
            leader = group.leader()
            assert leader is not None
            leader.crash()
            group.demand(lambda: group.leader() is not None, 30, "another leader")
            group.write_all(3)
            leader.start()
        group.demand(lambda: _are_alike(group), 30, "all are alike")
        victim = group.leader()
        assert victim is not None
        if plan.tail:
            _write_alone(group, victim, more_after=plan.more_after_tail)
        group.wait(lambda: False, 0.5)
        acknowledged = tuple(group.acknowledged)
    return History(plan=plan, disks=disks, victim=victim.name, acknowledged=acknowledged)


def _write_alone(group: _Group, victim: _NodeMachine, *, more_after: bool) -> None:
    others = [machine for machine in group.machines.values() if machine is not victim]
    for machine in others:
        machine.crash()
    group.write(7)
    group.wait(lambda: False, 0.05)  # written and fsynced, but not sent to anybody
    victim.crash()
    for machine in others:
        machine.start()
    group.demand(lambda: group.leader() is not None, 30, "a leader without the victim")
    group.write_all(9 if more_after else 1)


def cases(history: History, *, page_size: int) -> Iterator[Case]:
    """Yield a case for every page of every file of the victim's store."""
    disk = history.disks[history.victim]
    for path, sidecars in itertools.product(disk.paths(), (True, False)):
        is_sidecar = path.endswith(".index")
        if is_sidecar and not sidecars:
            continue
        in_log = path.startswith("commitlog/")
        yield Case(blow=Blow(kind=Kind.LOST, path=path), sidecars=sidecars)
        if in_log:
            yield Case(blow=Blow(kind=Kind.LOST, path=path), sidecars=sidecars, online=True)
        content = disk.content(path)
        size = len(content.rstrip(b"\0"))
        for start, kind in itertools.product(range(0, size, page_size), Kind):
            if kind is not Kind.LOST:
                blow = Blow(kind=kind, path=path, start=start, end=start + page_size)
                yield Case(blow=blow, sidecars=sidecars)
                if in_log:
                    yield Case(blow=blow, sidecars=sidecars, online=True)


def run_case(history: History, case: Case) -> bool:
    """Run one case; return False if the damage changed nothing. Raises Violation."""
    disks = {name: _copied(disk) for name, disk in history.disks.items()}
    victim = disks[history.victim]
    if not case.sidecars:
        for path in victim.paths():
            if path.endswith(".index"):
                victim.lose(path)
    if not case.online and not case.blow.strike(victim):
        return False
    with _Group(history.plan, disks, 10_000) as group:
        group.acknowledged += history.acknowledged
        group.start(*_NAMES)
        if case.online:
            group.wait(lambda: group.leader() is not None, HEAL_S)
            if case.blow.path not in victim.paths() or not case.blow.strike(victim):
                return False
            group.write_all(_SEGMENT_ENTRIES)  # the scrub reads closed segments only
        group.demand(lambda: _are_alike(group), HEAL_S, "it heals")
        group.write_all(3)
        group.demand(lambda: _are_alike(group), HEAL_S, "it goes on")
        for machine in group.machines.values():
            _check_acknowledged(machine, group.acknowledged)
    return True


def _fill(payload: bytes, _: Slot) -> bytes:
    return payload


def _are_alike(group: _Group) -> bool:
    machines = list(group.machines.values())
    if group.leader() is None or not all(machine.is_whole for machine in machines):
        return False
    statuses = [machine.status for machine in machines if machine.status is not None]
    if len({(one.last_index, one.applied_index) for one in statuses}) > 1:
        return False
    if statuses[0].applied_index != statuses[0].last_index:
        return False
    node = machines[0].node
    assert node is not None
    begin = max(one.begin_position for one in statuses)
    end = node._store.log.end_position
    return len({machine.log_bytes(begin, end) for machine in machines}) == 1


def _check_acknowledged(machine: _NodeMachine, acknowledged: Sequence[bytes]) -> None:
    applied = machine.state.payloads
    left = iter(applied)
    missing = [payload for payload in acknowledged if payload not in left]
    if missing:
        raise Violation("lost", f"{machine.name} lacks {missing[:3]}, acknowledged")
    if len(set(applied)) != len(applied):
        raise Violation("twice", f"{machine.name} has applied an entry twice")


def _copied(disk: SimDisk) -> SimDisk:
    """Return a copy of the disk as it is, all of it durable."""
    copy = SimDisk(random.Random(1))
    for path in disk.paths():
        copy.make_directory(path.rpartition("/")[0])
        copy.open(path, create=True)
        copy.spoil(path, disk.content(path))
    for directory in {"", *(path.rpartition("/")[0] for path in disk.paths())}:
        copy.sync_directory(directory)
    return copy
