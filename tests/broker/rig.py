"""A broker without sockets: real state machine, proposer and processors over a log in memory.

The log here commits what it is told to (`commit()`), so that tests decide what happens between a
proposal and its outcome. It is the seam's other side, not a stand-in for consensus: replication is
tested where it lives.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from inspect import ismethod, signature
from pathlib import Path
from typing import Any, TypeVar

from broker.config.config import BrokerConfig
from broker.entry.applied_entries import AppliedEntries
from broker.entry.payload import Run
from broker.entry.record import host_bytes
from broker.entry.topics import system_topics
from broker.leader.proposer import Proposer, ProposerLimits
from broker.process.request_table import ROW_OF
from broker.queues.consume_queues import ConsumeQueues
from broker.queues.state_machine import BrokerStateMachine
from broker.request.clients import Clients
from broker.request.clock_exchange import ClockExchange
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.long_polling import LongPolling
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.row import bound
from broker.request.tasks import TaskOwner
from broker.state.state import BrokerState, StateLimits
from campaigns.rig.waiting import until
from raft.events import Role
from raft.log.damage import Damage, DamagedLogError
from raft.log.log_format import HEADER_SIZE, encode_header
from raft.messages import Entry, EntryKind, NodeId
from raft.replicated_log import (
    CommittedEntry,
    LogFullError,
    LogStatus,
    NotLeaderError,
    Phase,
    ProposalResult,
    ProposalStatus,
    RetentionBounds,
    Slot,
)
from raft.turn import Turn
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import decode_frame
from remoting.records.message import UniqueIdGenerator

T = TypeVar("T")
START_MS = 1_700_000_000_000


class MemoryLog:
    """Implements ReplicatedLog with one node."""

    def __init__(self) -> None:
        self.machine: BrokerStateMachine | None = None
        self.leader = True
        self.term = 1
        self.data = bytearray()
        self.chain = 0
        self.entries: list[CommittedEntry] = []
        self.open: list[tuple[CommittedEntry, asyncio.Future[ProposalResult]]] = []
        self.auto_commit = True
        self.begin_position = 0
        self.snapshot_position: int | None = None  # None: at the log's end
        self.follower_position: int | None = None
        self.writable = True
        self.refusals = 0  # so many entries are refused next, as where a disk has no room
        self.entry_size_max = 8 << 20
        self.damage: Damage | None = None
        # Who waits for a confirmation; None: as with Raft, nobody has to.
        self.confirmations: list[Callable[[ProposalStatus], None]] | None = None

    def status(self) -> LogStatus:
        last = len(self.entries) + len(self.open)
        return LogStatus(
            role=Role.LEADER if self.leader else Role.FOLLOWER,
            term=self.term,
            leader_id=NodeId("n0") if self.leader else None,
            ready=self.leader,
            first_index=1,
            last_index=last,
            commit_index=len(self.entries),
            applied_index=len(self.entries),
            voters=(NodeId("n0"),),
            learners=(),
            begin_position=self.begin_position,
            writable=self.writable,
            phase=Phase.SERVING,
        )

    def propose(self, fill: Callable[[Slot], bytes]) -> asyncio.Future[ProposalResult]:
        if not self.leader:
            raise NotLeaderError(None)
        if self.refusals:
            self.refusals -= 1
            raise LogFullError
        slot = self.next_slot()
        payload = bytes(fill(slot))
        if len(payload) > self.entry_size_max:
            raise ValueError(f"payload of {len(payload)} bytes")
        stored = Entry(index=slot.index, term=self.term, kind=EntryKind.DATA, payload=payload)
        header, self.chain = encode_header(stored, len(self.data), self.chain)
        self.data += header + payload
        entry = CommittedEntry(
            index=slot.index,
            term=self.term,
            kind=EntryKind.DATA,
            position=slot.position,
            payload=payload,
            chain=self.chain,
        )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ProposalResult] = loop.create_future()
        self.open.append((entry, future))
        if self.auto_commit:
            loop.call_soon(self.commit)
        return future

    def confirm(self, on_done: Callable[[ProposalStatus], None]) -> None:
        if self.confirmations is None:
            on_done(ProposalStatus.COMMITTED)
        else:
            self.confirmations.append(on_done)

    def propose_then(
        self, fill: Callable[[Slot], bytes], on_done: Callable[[ProposalResult], None]
    ) -> None:
        self.propose(fill).add_done_callback(lambda done: on_done(done.result()))

    def next_slot(self) -> Slot:
        """Where the next entry will stand."""
        index = len(self.entries) + len(self.open) + 1
        return Slot(index=index, term=self.term, position=len(self.data) + HEADER_SIZE)

    def commit(
        self,
        count_max: int | None = None,
        status: ProposalStatus = ProposalStatus.COMMITTED,
    ) -> None:
        """Apply everything that is open, or so many entries of it, and answer with `status`."""
        for _ in range(len(self.open) if count_max is None else min(count_max, len(self.open))):
            entry, future = self.open.pop(0)
            self.entries.append(entry)
            assert self.machine is not None
            self.machine.apply([entry])
            result = ProposalResult(status=status, index=entry.index, term=entry.term)
            future.set_result(result)

    def depose(self, status: ProposalStatus = ProposalStatus.LOST_LEADERSHIP) -> None:
        """Lose leadership, and the term, with what is open neither committed nor known."""
        self.leader = False
        self.term += 1
        assert self.machine is not None
        self.machine.on_role_change(self.status())
        for entry, future in self.open:
            future.set_result(ProposalResult(status=status, index=entry.index, term=entry.term))
        self.open.clear()

    def lead(self) -> None:
        """Lead again, after `depose`."""
        self.leader = True
        assert self.machine is not None
        self.machine.on_role_change(self.status())

    async def read_index(self) -> int:
        if not self.leader:
            raise NotLeaderError(None)
        return len(self.entries)

    def read(self, position: int, size: int) -> bytes:
        if position < self.begin_position or position + size > len(self.data):
            raise LookupError(f"nothing at {position}")
        damage = self.damage
        if damage is not None and damage.position - size < position < damage.end_position:
            raise DamagedLogError(damage)
        return bytes(self.data[position : position + size])

    async def transfer_leadership(self, target: NodeId) -> None:
        raise ValueError(f"{target} is no other voter")

    def retention_bounds(self) -> RetentionBounds:
        return RetentionBounds(
            begin_position=self.begin_position,
            end_position=len(self.data),
            follower_position=self.follower_position,
        )

    async def retain_from(self, position: int) -> int:
        """Here every entry is a segment of its own."""
        if self.snapshot_position is not None:
            position = min(position, self.snapshot_position)
        starts = [entry.position - HEADER_SIZE for entry in self.entries] + [len(self.data)]
        begin = max(start for start in starts if start <= max(position, self.begin_position))
        if begin > self.begin_position:
            self.begin_position = begin
            assert self.machine is not None
            self.machine.trim(begin)
        return begin

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def wait_failed(self) -> BaseException:
        return await asyncio.get_running_loop().create_future()


class FakeConnection:
    """Collects what is sent to one client."""

    def __init__(self, peer: str = "127.0.0.1:50001") -> None:
        self.peer = peer
        self.closed = False
        self.sent: list[RemotingCommand] = []

    def send(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def send_frame(self, frame: bytes) -> None:
        self.sent.append(decode_frame(frame))


class AllParts:
    """Names of all parts of a broker in one place, for tests, which look into each of them."""

    def __init__(self, *parts: object) -> None:
        self.__dict__["_parts"] = parts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part_with(name), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._part_with(name), name, value)

    def _part_with(self, name: str) -> object:
        parts: tuple[object, ...] = self.__dict__["_parts"]
        for part in parts:
            if hasattr(part, name):
                return part
        raise AttributeError(name)


@dataclass
class Rig:
    directory: Path
    limits: StateLimits = field(default_factory=StateLimits)
    passed_ms: int = 0  # by the monotonic clock
    wall_ms: int = START_MS

    @property
    def now_ms(self) -> int:
        """The wall clock. Set forth, time passes; set back, the clock alone is turned back."""
        return self.wall_ms

    @now_ms.setter
    def now_ms(self, wall_ms: int) -> None:
        self.passed_ms += max(0, wall_ms - self.wall_ms)
        self.wall_ms = wall_ms

    def jump(self, jump_ms: int) -> None:
        """The wall clock jumps, no time passes."""
        self.wall_ms += jump_ms
        self.replica.clocks.tick(leads=self.leadership.ready)

    def __post_init__(self) -> None:
        self.config = BrokerConfig(
            group="broker-a",
            node="n0",
            store=self.directory,
            peers={"n0": "127.0.0.1:10915"},
            limits=self.limits,
        )
        self.log = MemoryLog()
        self.queues = ConsumeQueues(self.directory / "consumequeue")
        state = BrokerState(self.limits, system_topics("DefaultCluster", "broker-a"))
        self.applied = AppliedEntries()
        self.machine = BrokerStateMachine(
            state,
            self.queues,
            on_arrival=self._on_arrival,
            on_role=self._on_role,
            on_topics=lambda: None,
            applied=self.applied,
        )
        self.log.machine = self.machine
        clocks = ClockExchange(
            group="broker-a",
            node="n0",
            replicas={},
            state=state,
            status=self.log.status,
            wall_ms=lambda: self.wall_ms,
            monotonic_ms=lambda: self.passed_ms,
        )
        self.replica = Replica(
            config=self.config,
            log=self.log,
            state=state,
            queues=self.queues,
            clocks=clocks,
            clock_ms=clocks.now_ms,
            monotonic_ms=lambda: self.passed_ms,
            broker_addresses={},
        )
        proposer = Proposer(
            self.log,
            state,
            store_host=host_bytes("127.0.0.1:10911"),
            clock_ms=clocks.stamp_ms,
            lead_ms=clocks.lead_ms,
            limits=ProposerLimits(),
            turn=Turn(nullcontext()),
        )
        self.leadership = Leadership(self.replica, proposer)
        self.desk = Desk(
            clients=Clients(clients_max=100, client_silence_ms_max=120_000),
            long_polling=LongPolling(held_max=100),
            random=random.Random(7),
            unique_ids=UniqueIdGenerator(ip="127.0.0.1", pid=1, instance=1),
        )
        self.context = AllParts(self.replica, self.leadership, self.desk)
        self.tasks = TaskOwner()
        self._on_role(self.log.status())

    def make(self, kind: Callable[..., T], *others: Any, **named: Any) -> T:
        """Make a handler or a part of a broker, with those of this broker's parts that it takes."""
        parts = {
            "Replica": self.replica,
            "Leadership": self.leadership,
            "Desk": self.desk,
            "Clients": self.desk.clients,
        }
        asked = [each.annotation for each in signature(kind).parameters.values()]
        return kind(*[parts[name] for name in asked if name in parts], *others, **named)

    def _on_arrival(self, run: Run) -> None:
        self.desk.long_polling.on_arrival(run)

    def _on_role(self, status: LogStatus) -> None:
        self.leadership.change(ready=status.ready, term=status.term)

    @property
    def state(self) -> BrokerState:
        return self.replica.state

    async def ask(
        self,
        handler: Callable[..., None],
        code: int,
        fields: dict[str, str],
        body: bytes = b"",
        connection: FakeConnection | None = None,
    ) -> RemotingCommand:
        """Hand a request to a processor and wait for its answer, behind whatever the client hears
        meanwhile."""
        connection = connection or FakeConnection()

        def answers() -> list[RemotingCommand]:
            return [command for command in connection.sent if command.is_response]

        before = len(answers())
        self.give(handler, code, fields, body, connection)
        await until(lambda: len(answers()) != before)
        return answers()[-1]

    def give(
        self,
        handler: Callable[..., None],
        code: int,
        fields: dict[str, str],
        body: bytes,
        connection: FakeConnection,
    ) -> None:
        command = RemotingCommand(code=code, opaque=1, ext_fields=fields, body=body)
        request = Request(connection, command)  # type: ignore[arg-type]
        try:
            self._bound(handler, code)(request)
        except RefusedError as refused:
            request.refuse(refused)

    def _bound(self, handler: Callable[..., None], code: int) -> Callable[[Request], None]:
        """A method of a processor behind its row, as the broker calls it; all else as it is."""
        row = ROW_OF.get(code)
        return bound(row, handler, self.leadership) if row and ismethod(handler) else handler

    def replay(self, directory: Path) -> BrokerState:
        """The state that a restarted or second replica computes from the same log."""
        machine, queues = self.another_machine(directory)
        machine.apply(self.log.entries)
        queues.close()
        return machine.state

    def another_machine(self, directory: Path) -> tuple[BrokerStateMachine, ConsumeQueues]:
        """A replica's, or this one's in its next life, with nothing applied."""
        queues = ConsumeQueues(directory / "consumequeue")
        state = BrokerState(self.limits, system_topics("DefaultCluster", "broker-a"))
        machine = BrokerStateMachine(
            state,
            queues,
            on_arrival=lambda run: None,
            on_role=lambda status: None,
            on_topics=lambda: None,
        )
        return machine, queues


def send_fields(
    topic: str = "T", queue: int = 0, key: str | None = "K1", **more: str
) -> dict[str, str]:
    """A SEND_MESSAGE_V2 header."""
    properties = "".join(f"{name}\x01{value}\x02" for name, value in more.items())
    if key is not None:
        properties += f"UNIQ_KEY\x01{key}\x02"
    return {
        "a": "PG",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "4" if more.get("TRAN_MSG") else "0",
        "g": str(START_MS),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }


def pull_fields(topic: str = "T", queue: int = 0, offset: int = 0, **more: str) -> dict[str, str]:
    return {
        "consumerGroup": "G",
        "topic": topic,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
        **more,
    }
