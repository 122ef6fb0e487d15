"""What reaches a simulated node from outside: messages, and requests of clients and operators.

Place in the data path: network, workload and nemesis call it. It makes the checks that
`raft.node.core_shell` makes before it steps the core (is there room), and that of
`raft.peers.transport` (votes and acknowledgements count only from the store that the configuration
in force names for their sender), then steps the core. A paused node takes nothing in: what comes
waits, and is handled on resume.

Invariant: nothing is done for a dead node, and what waits dies with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Protocol

from chaos.sim.cores.applying import Applying
from chaos.sim.cores.core_fixture import World, message_line
from chaos.sim.cores.room import Room
from raft.core.core import Core
from raft.events import (
    ChangeMembership,
    Event,
    PeerUnreachable,
    Propose,
    ReadIndexRequest,
    Receive,
    TransferLeadership,
)
from raft.log.log_format import HEADER_SIZE
from raft.membership import Membership, MembershipChange
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    InstallSnapshotReply,
    Message,
    NodeId,
    RequestVoteReply,
    Term,
)

__all__ = ["Requests"]

_WAITING_COUNT_MAX = 5_000  # events of a paused node
_COUNTED = (AppendEntriesReply, InstallSnapshotReply, RequestVoteReply)


class Owner(Protocol):
    """The node that the requests reach; its parts are those of its present incarnation."""

    name: NodeId
    alive: bool
    incarnation: int
    core: Core
    room: Room
    applying: Applying

    @property
    def membership(self) -> Membership: ...

    @property
    def term(self) -> Term: ...

    @property
    def leads(self) -> bool: ...

    @property
    def is_ready(self) -> bool:
        """Whether the node accepts proposals."""

    def now_ms(self) -> int: ...

    def guard(self, action: Callable[[], object]) -> bool:
        """Run the action; return False if the node died of it."""

    def step(self, event: Event) -> None: ...


class Requests:
    """The requests of one node, across its incarnations; `forget` is called at the end of each."""

    def __init__(self, node: Owner, world: World, rng: random.Random) -> None:
        self._node = node
        self._rng = rng
        self._counts = world.coverage.counts
        self._trace = world.trace
        self.forget()

    def forget(self) -> None:
        self.paused = False
        self._waiting: list[Callable[[], None]] = []

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def when_awake(self, action: Callable[[], None]) -> None:
        """Run the action now, or on resume if paused; drop it if dead or too many wait."""
        if not self._node.alive:
            return
        if not self.paused:
            action()
        elif len(self._waiting) < _WAITING_COUNT_MAX:
            self._waiting.append(action)

    def resume(self) -> None:
        self.paused = False
        node, incarnation = self._node, self._node.incarnation
        waiting, self._waiting = self._waiting, []
        if waiting and self._rng.random() < 0.5:
            waiting.append(waiting.pop(0))
        for action in waiting:
            if node.incarnation == incarnation and node.alive:
                action()

    def receive(self, message: Message, sender_store: str) -> None:
        self.when_awake(partial(self._receive, message, sender_store))

    def peer_unreachable(self, peer: NodeId) -> None:
        self.when_awake(partial(self._peer_unreachable, peer))

    def propose(self, payload: bytes) -> None:
        self.when_awake(partial(self._propose, payload))

    def read(self, request_id: int) -> None:
        self.when_awake(partial(self._read, request_id))

    def transfer(self, target: NodeId) -> None:
        self.when_awake(partial(self.transfer_now, target))

    def change(self, change: MembershipChange) -> None:
        self.when_awake(partial(self._change, change))

    def _receive(self, message: Message, sender_store: str) -> None:
        if self._trace.on:
            self._trace.add(self._node.name, f"<- {message_line(message)}")
        if isinstance(message, _COUNTED):
            member = self._node.membership.member(message.sender)
            if member is not None and member.store_id not in {"", sender_store}:
                self._counts["messages_of_lost_stores"] += 1
                return
        if type(message) is AppendEntries and message.entries and self._node.room.writable:
            self._has_room(sum(HEADER_SIZE + len(entry.payload) for entry in message.entries))
        if self._node.alive:
            self._node.step(Receive(now_ms=self._node.now_ms(), message=message))

    def _has_room(self, size: int) -> bool:
        """Return whether the log has room; False also where the node died in the check."""
        incarnation, answers = self._node.incarnation, [False]
        self._node.guard(lambda: answers.append(self._node.room.has(size)))
        return answers[-1] and self._node.alive and self._node.incarnation == incarnation

    def _peer_unreachable(self, peer: NodeId) -> None:
        self._node.step(PeerUnreachable(now_ms=self._node.now_ms(), peer=peer))

    def transfer_now(self, target: NodeId) -> None:
        if self._node.leads:
            self._node.step(TransferLeadership(now_ms=self._node.now_ms(), target=target))

    def _change(self, change: MembershipChange) -> None:
        if self._trace.on:
            self._trace.add(self._node.name, f"is asked to {change}")
        self._node.step(ChangeMembership(now_ms=self._node.now_ms(), change=change))

    def _propose(self, payload: bytes) -> None:
        # A proposal is definitely rejected where the node is not ready or has no room: nothing was
        # appended.
        if not self._node.is_ready or not self._has_room(HEADER_SIZE + len(payload)):
            return
        self._node.applying.add_proposal(self._node.core.last_index + 1, self._node.term, payload)
        self._node.step(Propose(now_ms=self._node.now_ms(), payload=payload))

    def _read(self, request_id: int) -> None:
        self._node.step(ReadIndexRequest(now_ms=self._node.now_ms(), request_id=request_id))
