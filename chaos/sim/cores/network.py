"""TCP connections between nodes, one per directed pair, and the faults they can have.

Place in the data path: a node's shell sends here, the other node's shell receives after a delay.

What it models: within one connection order holds, and nothing is lost unless the connection is; a
lost connection takes what is in flight with it, but part of that may have reached the receiver's
buffer and be handled later, in between what the next connection brings; a cut swallows one
direction, and when it heals the connection has either died or brings everything late (TCP
retransmits); a full send queue drops single messages; a message may come twice, long after the
first time. Raft must tolerate all of it. Both ends are notified of a lost connection, not of a cut.

Each message carries the stores of both ends, as a connection does after its handshake: a message to
a store that was wiped meanwhile is dropped.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.trace import Trace
from chaos.sim.seed.core_options import SimOptions
from chaos.sim.seed.coverage import Coverage
from raft.messages import Message, NodeId

__all__ = ["Network", "Sent"]

_HELD_COUNT_MAX = 256  # messages that a cut link keeps: a send buffer is bounded too
_STALE_DELAY_TIMEOUTS_MAX = 10  # election timeouts


class Sent(NamedTuple):
    """A message, and the stores of the two nodes when it was sent."""

    message: Message
    sender_store: str
    receiver_store: str


class _Link:
    """One direction between two nodes."""

    __slots__ = ("arrival_us", "cuts", "epoch", "held", "receiver", "sender", "slow_us")

    def __init__(self, sender: NodeId, receiver: NodeId) -> None:
        self.sender = sender
        self.receiver = receiver
        self.epoch = 0  # counts connections
        self.arrival_us = 0  # of the last message sent on this connection
        self.cuts = 0  # cuts in force on it
        self.slow_us = 0
        self.held: deque[Sent] = deque(maxlen=_HELD_COUNT_MAX)


class Network:
    """The network. `deliver` takes a message, `unreachable(node, peer)` a lost connection."""

    def __init__(
        self,
        *,
        options: SimOptions,
        nodes: Sequence[NodeId],
        rng: random.Random,
        scheduler: Scheduler,
        coverage: Coverage,
        trace: Trace,
        deliver: Callable[[Sent], None],
        unreachable: Callable[[NodeId, NodeId], None],
    ) -> None:
        self._random = rng.random
        self._scheduler = scheduler
        self._counts = coverage.counts
        self._trace = trace
        self._deliver = deliver
        self._unreachable = unreachable
        self._delay_us_min = options.link_delay_us_min
        self._delay_us_spread = max(0, options.link_delay_us_max - options.link_delay_us_min)
        self._stale_delay_us_max = (
            _STALE_DELAY_TIMEOUTS_MAX * options.election_timeout_ms_min * 1000
        )
        self._drop_rate = options.message_drop_rate
        self._stale_rate = options.stale_rate
        self._duplicate_rate = options.duplicate_rate
        self._held_survive_rate = options.held_survive_rate
        self._links = {
            (sender, receiver): _Link(sender, receiver)
            for sender in nodes
            for receiver in nodes
            if sender != receiver
        }

    # --- messages ------------------------------------------------------------------------------

    def send(self, sent: Sent) -> None:
        link = self._links[sent.message.sender, sent.message.receiver]
        if self._drop_rate and self._random() < self._drop_rate:
            self._counts["messages_dropped"] += 1
            return
        if self._duplicate_rate and self._random() < self._duplicate_rate:
            self._deliver_late(link, sent, "messages_duplicated")
        if link.cuts:
            self._hold(link, sent)
            return
        self._put(link, sent)

    def _put(self, link: _Link, sent: Sent) -> None:
        now_us = self._scheduler.now_us
        delay_us = self._delay_us_min + int(self._random() * self._delay_us_spread) + link.slow_us
        link.arrival_us = max(link.arrival_us, now_us + delay_us)
        self._scheduler.at(link.arrival_us, partial(self._arrive, link, link.epoch, sent))

    def _arrive(self, link: _Link, epoch: int, sent: Sent) -> None:
        if link.epoch != epoch:
            if self._random() < self._stale_rate:
                self._deliver_late(link, sent, "messages_delivered_stale")
            else:
                self._counts["messages_lost_with_connections"] += 1
        elif link.cuts:
            self._hold(link, sent)
        else:
            self._counts["messages_delivered"] += 1
            self._deliver(sent)

    def _hold(self, link: _Link, sent: Sent) -> None:
        self._counts["messages_swallowed_by_cuts"] += 1
        link.held.append(sent)

    def _deliver_late(self, link: _Link, sent: Sent, counter: str) -> None:
        """Deliver out of order, as from the buffer of an old connection."""
        delay_us = int(self._stale_delay_us_max * self._random() ** 2)
        self._scheduler.after(delay_us, partial(self._arrive_late, link, sent, counter))

    def _arrive_late(self, link: _Link, sent: Sent, counter: str) -> None:
        if not link.cuts:
            self._counts[counter] += 1
            self._deliver(sent)

    # --- faults --------------------------------------------------------------------------------

    def cut(self, sender: NodeId, receiver: NodeId) -> None:
        """Swallow everything from `sender` to `receiver` until as many heals have come as cuts."""
        self._links[sender, receiver].cuts += 1

    def heal(self, sender: NodeId, receiver: NodeId) -> None:
        link = self._links[sender, receiver]
        assert link.cuts > 0, f"{sender} to {receiver} was not cut"
        link.cuts -= 1
        if link.cuts:
            return
        held = list(link.held)
        link.held.clear()
        if self._random() < self._held_survive_rate:
            for sent in held:
                self._put(link, sent)
        elif held:
            self._counts["messages_lost_with_connections"] += len(held)
            self.reset(sender, receiver)

    def heal_all(self) -> None:
        for link in self._links.values():
            link.slow_us = 0
            while link.cuts:
                self.heal(link.sender, link.receiver)

    def calm(self, *, delay_us_max: int) -> None:
        """Make the network healthy from now on: short delays, nothing dropped or repeated."""
        self._delay_us_min = min(self._delay_us_min, delay_us_max // 2)
        self._delay_us_spread = min(self._delay_us_spread, delay_us_max - self._delay_us_min)
        self._drop_rate = 0.0
        self._duplicate_rate = 0.0
        self.heal_all()

    def slow(self, sender: NodeId, receiver: NodeId, delay_us: int) -> None:
        self._links[sender, receiver].slow_us = delay_us

    def reset(self, sender: NodeId, receiver: NodeId) -> None:
        """Break the connection and lose what is in flight; both ends are notified."""
        link = self._links[sender, receiver]
        link.epoch += 1
        link.arrival_us = 0
        self._counts["connections_lost"] += 1
        if self._trace.on:
            self._trace.add("network", f"connection {sender}->{receiver} lost")
        for node, peer in ((sender, receiver), (receiver, sender)):
            delay_us = int(self._random() * 5_000)
            self._scheduler.after(delay_us, partial(self._unreachable, node, peer))

    def reset_node(self, node: NodeId) -> None:
        """Break every connection of the node in both directions, as when its process dies."""
        for sender, receiver in self._links:
            if node in {sender, receiver}:
                self.reset(sender, receiver)
