"""A master's connections to its slaves: what each one has, and what is pushed to it.

Place in the data path: `broker.ha.engine` reports what was appended; a slave reports how far it is,
and the acknowledgements go by that.

Invariants: a slave gets the log's bytes in order, each frame within one file; a connection that
reports nothing for `silence_ms_max` is closed; at most a few frames per slave wait to be sent; who
names no position of this log counts as no slave; a slave with an IP address of its own counts once,
by its newest connection, and the older one is closed. A position that this log has not is answered
with a heartbeat that names the nearest one that it has: RocketMQ's slave closes the connection at
that, and says so in its log.

Source: RocketMQ DefaultHAService, DefaultHAConnection. There a slave without a log gets the last
file alone, here all files: topics and offsets stand in the log (decision 28).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from broker.ha.commit_log import CommitLog
from broker.ha.config import HaConfig
from broker.ha.frame_writer import send
from broker.ha.frames import PUSH, REPORT, TRANSFER_SIZE

__all__ = ["Slaves"]

_CONNECTIONS_MAX: Final = 64
_WRITE_BUFFER_SIZE_MAX: Final = 1 << 20

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Slave:
    """One connection. `reported`: by the slave, -1: nothing yet; `wanted`: its first report;
    `pushed`: up to where bytes were sent; `acknowledged`: what of these it has."""

    peer: str
    host: str
    writer: asyncio.StreamWriter
    reported: int = -1
    wanted: int = 0
    pushed: int = 0
    acknowledged: int = 0
    grown: asyncio.Event = field(default_factory=asyncio.Event)


def _host_of(address: str) -> str:
    """Return the host of an address, as the name of a peer shows it where it is an IP address."""
    return address.rpartition(":")[0].strip("[]")


class Slaves:
    """The slaves that are connected to this master.

    Calls `on_reported` on the loop when a slave reports a new position or disconnects, and
    `on_error` with an exception that a connection to a slave must not raise.
    """

    def __init__(
        self,
        config: HaConfig,
        log: CommitLog,
        on_reported: Callable[[], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._log = log
        self._on_reported = on_reported
        self._on_error = on_error
        self._slaves: list[_Slave] = []
        hosts = [_host_of(config.peers[name]) for name in config.peers if name != config.master]
        self._hosts_of_one = {host for host in hosts if hosts.count(host) == 1}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Accept connections of slaves from now on. Raises OSError."""
        host, _, port = self._config.listen.rpartition(":")
        self._server = await asyncio.start_server(self._accept, host.strip("[]"), int(port))

    async def stop(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def appended(self) -> None:
        """Wake the connections, so that they send what was appended."""
        for slave in self._slaves:
            slave.grown.set()

    def replicated_position(self, count: int) -> int:
        """Return the position up to which `count` slaves have the log; 0 where there are fewer."""
        known = sorted((slave.acknowledged for slave in self._slaves), reverse=True)
        return known[count - 1] if len(known) >= count else 0

    def near_count(self) -> int:
        """Return how many slaves are within the gap that counts as available."""
        least = self._log.end.position - self._config.gap_size_max
        return sum(slave.reported >= max(0, least) for slave in self._slaves)

    @property
    def slowest_position(self) -> int | None:
        """Return the first position that some connected slave lacks; None without a slave."""
        return min((s.reported for s in self._slaves if s.reported >= 0), default=None)

    # --- connections ---------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._attend(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_error(error)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # None where the connection was reset before it was accepted.
        peer = writer.get_extra_info("peername") or ("?", 0)
        slave = _Slave(str(peer), str(peer[0]), writer)
        try:
            if len(self._tasks) > _CONNECTIONS_MAX:
                _log.warning("slave %s is one too many", slave.peer)
                return
            writer.transport.set_write_buffer_limits(high=_WRITE_BUFFER_SIZE_MAX)
            await self._serve(slave, reader, writer)
        except* (OSError, EOFError, TimeoutError, LookupError) as errors:
            _log.warning("slave %s is gone: %r", slave.peer, errors.exceptions[0])
        finally:
            if slave in self._slaves:
                self._slaves.remove(slave)
            self._on_reported()
            writer.close()

    def _join(self, slave: _Slave) -> None:
        """Count a slave, and none by an older connection, which may look alive here for
        `silence_ms_max`: that one is closed, since whoever is behind it has to come again."""
        if slave.host in self._hosts_of_one:
            for older in [one for one in self._slaves if one.host == slave.host]:
                self._slaves.remove(older)
                older.writer.close()
        self._slaves.append(slave)
        self._on_reported()

    async def _serve(
        self, slave: _Slave, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        wanted = await self._report(reader)
        _log.info("slave %s wants the log from %d on", slave.peer, wanted)
        slave.wanted = wanted
        slave.reported = slave.pushed = min(wanted, self._log.end.position)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._receive(slave, reader))
            group.create_task(self._push(slave, wanted, writer))

    async def _report(self, reader: asyncio.StreamReader) -> int:
        """Return the next report. Raises TimeoutError, EOFError, OSError."""
        async with asyncio.timeout(self._config.silence_ms_max / 1000):
            (position,) = REPORT.unpack(await reader.readexactly(REPORT.size))
        return int(position)

    async def _receive(self, slave: _Slave, reader: asyncio.StreamReader) -> None:
        while True:
            slave.reported = await self._report(reader)
            # Who claims more than was sent has another log than this one, and who repeats where it
            # wants to begin has compared nothing yet.
            if slave.wanted < slave.reported <= slave.pushed:
                slave.acknowledged = slave.reported
            self._on_reported()

    async def _push(self, slave: _Slave, wanted: int, writer: asyncio.StreamWriter) -> None:
        """Push the log from `wanted` on, and heartbeats where there is nothing to push."""
        log, next_position = self._log, wanted or self._log.begin.position
        while not log.begin.position <= next_position <= log.end.position:
            nearest = min(max(next_position, log.begin.position), log.end.position)
            _log.error(
                "slave %s has the log up to %d, and this master has %d to %d",
                slave.peer,
                next_position,
                log.begin.position,
                log.end.position,
            )
            send(writer, PUSH.pack(nearest, 0))
            await writer.drain()
            await asyncio.sleep(self._config.heartbeat_ms / 1000)
        self._join(slave)
        idle = True  # where there is nothing to push, a heartbeat says at once that this is so
        while True:
            slave.grown.clear()
            chunk = log.read_chunk(next_position, TRANSFER_SIZE)
            if chunk or idle:
                send(writer, PUSH.pack(next_position, len(chunk)), chunk)
                await writer.drain()
                next_position += len(chunk)
                slave.pushed = next_position
                idle = False
            if not chunk:
                try:
                    async with asyncio.timeout(self._config.heartbeat_ms / 1000):
                        await slave.grown.wait()
                except TimeoutError:
                    idle = True
