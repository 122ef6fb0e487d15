"""TCP between simulated processes: listeners, connections, and their faults.

Place in the data path: `virtual_loop` hands the product's create_connection and create_server to
it; the nemesis of whole-group seeds cuts, slows and resets the links between machines here.

What it models: bytes arrive in order, whole or not at all; a process that dies resets its
connections (its kernel lives on), a machine that loses power sends nothing, and its peers find out
when they send; a cut swallows one direction between two machines, and after it the connection
either brings everything late or is reset; a narrow link lets bytes through one after the other, and
what waits when it is widened comes at once; bytes that stay unacknowledged for `USER_TIMEOUT_US`
break a connection; a middlebox garbles frames (`chaos.sim.machine.garbling`), and the reader of an
invalid frame has to close the connection; a paused process neither reads nor writes, and its kernel
still acknowledges.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import deque
from collections.abc import Callable
from functools import partial

from chaos.sim.machine.current_process import Process, ProcessLoop
from chaos.sim.machine.garbling import Garbled, garbled
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.tcp_transport import Address, SimServer, SimTransport
from chaos.sim.machine.trace import Trace
from chaos.sim.machine.violation import Violation

__all__ = ["SimTcp"]

USER_TIMEOUT_US = 5_000_000
_CLOSED_WITHIN_US = 1_000_000  # limit for a process that has read an invalid frame
_FIRST_EPHEMERAL_PORT = 40_000


class _Waiting:
    """Bytes, or the end of a stream, that wait for those before them on a narrow link."""

    __slots__ = ("after_us", "deliver", "sender", "size", "turn")

    def __init__(self, sender: SimTransport, size: int, deliver: Callable[[], None]) -> None:
        self.sender = sender
        self.after_us = sender.arrival_us  # of what the sender wrote before
        self.size = size
        self.deliver = deliver
        self.turn = 0  # counts how often its arrival was put anew


class _Link:
    """One direction between two machines."""

    __slots__ = (
        "byte_us",
        "cut_since_us",
        "cuts",
        "free_us",
        "garbles_left",
        "garbling",
        "held",
        "jitter_us",
        "slow_us",
        "waiting",
    )

    def __init__(self) -> None:
        self.cuts = 0
        self.cut_since_us = 0
        self.slow_us = 0
        self.jitter_us = 0
        self.byte_us = 0.0  # what a byte takes; 0: no limit
        self.free_us = 0.0  # when the bytes before are through, where there is a limit
        self.garbles_left = 0  # number of writes
        self.garbling = random.Random(0)
        self.held: deque[Callable[[], None]] = deque()
        self.waiting: deque[_Waiting] = deque()  # in the order of their arrival


class SimTcp:
    """The network of a seed. `delay_us` draws how long a packet takes between two machines."""

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        counts: dict[str, int],
        trace: Trace,
        *,
        delay_us_min: int,
        delay_us_max: int,
        held_survive_rate: float,
    ) -> None:
        self._scheduler = scheduler
        self._random = rng.random
        self._counts = counts
        self._trace = trace
        self._delay_us_min = delay_us_min
        self._delay_us_spread = max(0, delay_us_max - delay_us_min)
        self._held_survive_rate = held_survive_rate
        self._links: dict[tuple[str, str], _Link] = {}
        self._listeners: dict[Address, SimServer] = {}
        self._transports: dict[SimTransport, None] = {}
        self._machines: dict[str, str] = {}  # by ip
        self._ips: dict[str, tuple[str, ...]] = {}  # by machine
        self._aliases: dict[str, tuple[str, str]] = {}  # ip: place of the dialer, real ip
        self._dark: set[str] = set()  # machines without power
        self._port = _FIRST_EPHEMERAL_PORT

    def add_machine(self, machine: str, *ips: str) -> None:
        """Add a machine, whose connections come from each of its addresses in turn."""
        self._machines.update(dict.fromkeys(ips, machine))
        self._ips[machine] = ips

    def add_alias(self, ip: str, *, source: str, target: str) -> None:
        """Let a connection to `ip` be one from the machine `source` to the address `target`.

        So a process dials from another place of the network than its own.
        """
        self._aliases[ip] = source, target

    # --- interface of the loops ----------------------------------------------------------------

    def listen(
        self, loop: ProcessLoop, factory: Callable[[], asyncio.BaseProtocol], address: Address
    ) -> SimServer:
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = SimServer(self, loop, factory, address)
        self._listeners[address] = server
        return server

    def stop_listening(self, server: SimServer) -> None:
        if self._listeners.get(server.address) is server:
            del self._listeners[server.address]

    def is_listening(self, server: SimServer) -> bool:
        return self._listeners.get(server.address) is server

    async def connect(
        self, loop: ProcessLoop, factory: Callable[[], asyncio.BaseProtocol], address: Address
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect: one packet there, one back. Raises ConnectionRefusedError."""
        own_host, ip = self._aliases.get(address[0], (loop.process.host, address[0]))
        address = ip, address[1]
        peer_host = self._machines[ip]
        answer: asyncio.Future[SimTransport] = loop.create_future()
        there = partial(self._on_syn, loop, own_host, address, answer)
        self._packet(own_host, peer_host, there)
        transport = await answer
        if transport.lost:  # reset before the caller got it
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        protocol = factory()
        transport.open(protocol)
        return transport, protocol

    def _on_syn(
        self,
        loop: ProcessLoop,
        own_host: str,
        address: Address,
        answer: asyncio.Future[SimTransport],
    ) -> None:
        peer_host = self._machines[address[0]]
        server = self._listeners.get(address)
        if server is None:
            if peer_host not in self._dark:
                self._packet(peer_host, own_host, partial(_refuse, loop, answer))
            return
        self._port += 1
        ips = self._ips[own_host]
        near_address = (ips[self._port % len(ips)], self._port)
        near = SimTransport(self, loop, near_address, address, peer_host)
        far = SimTransport(self, server.loop, address, near_address, own_host)
        near.peer, far.peer = far, near
        self._transports[near] = None
        self._transports[far] = None
        self._counts["tcp_connections"] += 1
        server.loop.call_soon(_accept, server, far)
        self._packet(peer_host, own_host, partial(_established, loop, answer, near))

    def accepted(self, loop: ProcessLoop, port: int) -> list[SimTransport]:
        """Return the open ends at a process of the connections to the port that it listens on."""
        return [one for one in self._transports if one.loop is loop and one.own_address[1] == port]

    # --- packets -------------------------------------------------------------------------------

    def transmit(self, sender: SimTransport, data: bytes | None) -> None:
        """Carry bytes to the other side, or None for the end of them."""
        receiver = sender.peer
        assert receiver is not None
        link = self._link(receiver.peer_host, sender.peer_host)
        changed = garbled(data, link.garbling) if link.garbles_left and data else None
        if changed is None:
            deliver = partial(self._deliver, sender, receiver, data)
        else:
            link.garbles_left -= 1
            self._counts["frames_garbled"] += 1
            deliver = partial(self._deliver_garbled, sender, receiver, changed)
        if link.cuts:
            self._hold(link, sender, deliver)
            return
        if link.byte_us or link.waiting:
            waiting = _Waiting(sender, len(data or b""), deliver)
            link.waiting.append(waiting)
            self._put_arrival(link, waiting)
            return
        sender.arrival_us = max(sender.arrival_us, self._scheduler.now_us + self._delay_us(link))
        self._scheduler.at(sender.arrival_us, partial(self._arrive, link, sender, deliver))

    def _put_arrival(self, link: _Link, waiting: _Waiting) -> None:
        """Have it arrive behind everything that waits on the link already."""
        now_us, sender = self._scheduler.now_us, waiting.sender
        link.free_us = max(link.free_us, now_us) + waiting.size * link.byte_us
        due_us = int(link.free_us) + self._delay_us(link)
        sender.arrival_us = max(sender.arrival_us, due_us)
        waiting.turn += 1
        arrive = partial(self._arrive_late, link, waiting, waiting.turn)
        self._scheduler.at(sender.arrival_us, arrive)

    def _arrive_late(self, link: _Link, waiting: _Waiting, turn: int) -> None:
        if turn == waiting.turn:  # else the link's rate was changed meanwhile
            link.waiting.remove(waiting)
            self._arrive(link, waiting.sender, waiting.deliver)

    def _arrive(self, link: _Link, sender: SimTransport, deliver: Callable[[], None]) -> None:
        if link.cuts:
            self._hold(link, sender, deliver)
        else:
            deliver()

    def _deliver(self, sender: SimTransport, receiver: SimTransport, data: bytes | None) -> None:
        machine = sender.peer_host
        if machine in self._dark:  # nobody there acknowledges
            self._scheduler.after(USER_TIMEOUT_US, partial(_time_out, sender))
            return
        if receiver.lost or receiver.loop.dead:
            # A program that still runs on that machine knows no such connection.
            self._packet(machine, receiver.peer_host, partial(_reset, sender))
            return
        self._counts["tcp_deliveries"] += 1
        if self._trace.on:
            what = "end" if data is None else f"{len(data)} bytes"
            self._trace.add(machine, f"<- {receiver.peer_host} {sender.name}: {what}")
        receiver.arrive(data)

    def _deliver_garbled(
        self, sender: SimTransport, receiver: SimTransport, changed: Garbled
    ) -> None:
        if self._trace.on:
            self._trace.add(sender.peer_host, f"{receiver.name}: garbled, {changed.kind}")
        self._deliver(sender, receiver, changed.data)
        if changed.is_cut:
            for side in (sender, receiver):
                _reset(side)
        else:
            self._scheduler.after(_CLOSED_WITHIN_US, partial(self._check_closed, receiver, changed))

    def _check_closed(self, receiver: SimTransport, changed: Garbled) -> None:
        if receiver.lost or receiver.loop.dead:
            self._counts["garbled_connections_closed"] += 1
        elif receiver.has_unread:  # it is paused, or lets its peer wait
            self._scheduler.after(_CLOSED_WITHIN_US, partial(self._check_closed, receiver, changed))
        else:
            raise Violation(
                "garbled", f"{receiver.name} has read a garbled frame ({changed.kind}), and is open"
            )

    def send_reset(self, sender: SimTransport) -> None:
        receiver = sender.peer
        assert receiver is not None
        self._packet(receiver.peer_host, sender.peer_host, partial(_reset, receiver))

    def _packet(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """Send one packet outside of a stream; where the link is cut it is held until the heal."""
        link = self._link(source, target)
        if link.cuts:
            link.held.append(arrive)  # it is retransmitted until it gets through
            return
        self._scheduler.after(self._delay_us(link), arrive)

    def _delay_us(self, link: _Link) -> int:
        delay_us = self._delay_us_min + int(self._random() * self._delay_us_spread) + link.slow_us
        if link.jitter_us:
            delay_us += int((2 * self._random() - 1) * link.jitter_us)
        return max(0, delay_us)

    def _hold(self, link: _Link, sender: SimTransport, deliver: Callable[[], None]) -> None:
        self._counts["tcp_held_by_cuts"] += 1
        link.held.append(deliver)
        self._scheduler.after(USER_TIMEOUT_US, partial(self._give_up, link, sender, deliver))

    def _give_up(self, link: _Link, sender: SimTransport, deliver: Callable[[], None]) -> None:
        if link.cuts and deliver in link.held:
            _time_out(sender)

    def forget(self, transport: SimTransport) -> None:
        self._transports.pop(transport, None)

    def _link(self, source: str, target: str) -> _Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = _Link()
        return link

    # --- faults --------------------------------------------------------------------------------

    def process_died(self, process: Process) -> None:
        """Close every connection of the process, as its kernel does; the machine itself goes on."""
        self._drop_listeners(process)
        for transport in [t for t in self._transports if t.loop is process.loop]:
            self.send_reset(transport)
            transport.lost = True
            self.forget(transport)

    def power_lost(self, process: Process) -> None:
        """Turn the machine dark: nobody is notified, and senders wait in vain until it is back."""
        self._dark.add(process.host)
        self._drop_listeners(process)
        for transport in [t for t in self._transports if t.loop is process.loop]:
            transport.lost = True
            self.forget(transport)

    def power_restored(self, machine: str) -> None:
        """Turn the machine on again: it knows none of the connections that its peers still hold."""
        if machine not in self._dark:
            return
        self._dark.discard(machine)
        for transport in list(self._transports):
            if transport.peer_host == machine:
                self._packet(machine, transport.loop.process.host, partial(_reset, transport))

    def cut(self, source: str, target: str) -> None:
        """Swallow everything from `source` to `target` until as many heals have come as cuts."""
        self._link(source, target).cuts += 1

    def heal(self, source: str, target: str) -> None:
        link = self._link(source, target)
        assert link.cuts > 0, f"{source} to {target} was not cut"
        link.cuts -= 1
        if link.cuts:
            return
        held = list(link.held)
        link.held.clear()
        # The connection died during the cut; part of what was held may still arrive before the
        # reset.
        if held and self._random() >= self._held_survive_rate:
            self.reset(source, target)
        now_us = self._scheduler.now_us
        for deliver in held:
            self._scheduler.at(now_us + self._delay_us_min, deliver)

    def slow(
        self, source: str, target: str, delay_us: int, *, jitter_us: int = 0, byte_us: float = 0.0
    ) -> None:
        """Delay by `delay_us` more, plus or minus up to `jitter_us`; let a byte take `byte_us`.

        What waits for a narrow link takes the new rate: no pipe keeps the bytes that it lets
        through now.
        """
        link = self._link(source, target)
        link.slow_us, link.jitter_us, link.byte_us = delay_us, jitter_us, byte_us
        link.free_us = 0.0
        for waiting in reversed(link.waiting):
            waiting.sender.arrival_us = waiting.after_us
        for waiting in link.waiting:
            self._put_arrival(link, waiting)

    def garble(self, source: str, target: str, count: int, rng: random.Random) -> None:
        """Garble the next `count` writes from `source` to `target` by `rng`."""
        link = self._link(source, target)
        link.garbles_left, link.garbling = count, rng

    def leave(self, source: str, target: str) -> None:
        """Stop garbling there."""
        self._link(source, target).garbles_left = 0

    def reset(self, source: str, target: str) -> None:
        """Break every connection between the two machines, on both sides."""
        self._counts["connections_lost"] += 1
        for transport in list(self._transports):
            if transport.loop.process.host == source and transport.peer_host == target:
                peer = transport.peer
                assert peer is not None
                for side in (transport, peer):
                    delay_us = int(self._random() * 5_000)
                    self._scheduler.after(delay_us, partial(_reset, side))

    def reset_node(self, machine: str) -> None:
        for transport in list(self._transports):
            if transport.loop.process.host == machine:
                self.reset(machine, transport.peer_host)

    def calm(self, *, delay_us_max: int) -> None:
        """Make the network healthy from now on."""
        self._delay_us_min = min(self._delay_us_min, delay_us_max // 2)
        self._delay_us_spread = min(self._delay_us_spread, delay_us_max - self._delay_us_min)
        self.heal_all()

    def heal_all(self) -> None:
        for (source, target), link in self._links.items():
            link.slow_us = link.jitter_us = 0
            link.byte_us = 0.0
            link.garbles_left = 0
            while link.cuts:
                self.heal(source, target)

    def _drop_listeners(self, process: Process) -> None:
        for server in [s for s in self._listeners.values() if s.loop is process.loop]:
            self.stop_listening(server)


def _accept(server: SimServer, transport: SimTransport) -> None:
    if transport.lost:
        return
    transport.open(server.factory())


def _refuse(loop: ProcessLoop, answer: asyncio.Future[SimTransport]) -> None:
    error = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    loop.call_soon(_fail, answer, error)


def _fail(answer: asyncio.Future[SimTransport], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _established(
    loop: ProcessLoop, answer: asyncio.Future[SimTransport], transport: SimTransport
) -> None:
    loop.call_soon(_succeed, answer, transport)


def _succeed(answer: asyncio.Future[SimTransport], transport: SimTransport) -> None:
    if not answer.done():
        answer.set_result(transport)
    else:  # the connecting side has given up
        transport.abort()


def _reset(transport: SimTransport) -> None:
    transport.lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))


def _time_out(transport: SimTransport) -> None:
    transport.lose(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
