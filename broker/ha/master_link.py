"""A slave's connection to its master: its log becomes the master's.

Place in the data path: `broker.ha.engine` runs it on a slave, and applies what `on_received` says
has come whole.

RocketMQ's protocol names a position and nothing of what stands before it. So a slave requests its
own last entry again, and compares: the chain in it shows that all before is the same. Where it
differs, the slave goes back file by file, finds where the two logs part, cuts its own there, and
raises StateDivergedError: its state holds what the master has not. The same happens where the
master ends before the slave does. (A RocketMQ slave notices neither, if the lengths agree.) Where
retention has let the master's log begin exactly at this one's end, the last entry is gone there:
the slave requests what follows its end, and the chain in the first entry is compared.

Invariants: an entry is taken only behind bytes that were found equal on this connection, or where
it names the chain that this log has; nothing is cut but what differs from the master's log, or lies
behind its end; each cut is logged as an error; a log that has nothing in common with the master's
is never cut.

Source: RocketMQ DefaultHAClient.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker.ha.commit_log import CommitLog, Standing
from broker.ha.config import HaConfig
from broker.ha.frame_writer import send
from broker.ha.frames import FRAME_SIZE_MAX, PUSH, REPORT
from broker.ha.framing import FramingError
from raft.log.segment_files import NO_ROOM
from raft.messages import LogBase
from raft.replicated_log import StateDivergedError

__all__ = ["MasterLink"]

_CONNECT_TIMEOUT_S: Final = 3.0
_IDLE_HEARTBEATS: Final = 2  # so many one after the other: the master has nothing more to push

_log = logging.getLogger(__name__)


class _LinkError(Exception):
    """What the master sends does not go on from where this log stands."""


class MasterLink:
    """Link of one slave. `on_received` gets the entries that have come whole; `on_connected` is
    called with True when some of the master's log was found equal to this one, or none of this one
    is left to compare, though more may still have to come, and with False when an attempt to follow
    it has ended; `before_cut` is awaited before the log is cut."""

    def __init__(
        self,
        config: HaConfig,
        log: CommitLog,
        *,
        on_received: Callable[[list[Standing]], None],
        on_connected: Callable[[bool], None],
        before_cut: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._log = log
        self._on_received = on_received
        self._on_connected = on_connected
        self._before_cut = before_cut
        self._compared = 0  # up to here this log is the master's
        self._begin: LogBase = log.end  # where the comparison began: a place of this log
        self._idle_heartbeats = 0
        self._steps_back = 0  # files that the next comparison begins before the last entry's
        self._begins_at_end = False  # the next comparison: what the master has begins there
        self._compares_by_chain = False  # until the first entry behind this log's end is taken
        self._has_room = True
        self._warned = ""  # the last warning, which is not repeated at every attempt

    @property
    def has_room(self) -> bool:
        """Whether the last write found room on the disk."""
        return self._has_room

    async def run(self) -> None:
        """Follow the master until cancelled. Raises StateDivergedError after a cut, OSError of this
        node's disk, CorruptLogError."""
        address = self._config.peers[self._config.master]
        while True:
            try:
                await self._follow(self._config.dial.get(address, address))
            except (_LinkError, FramingError, EOFError, TimeoutError, ConnectionError) as error:
                text = f"the link to the master at {address} is down: {error!r}"
                _log.log(logging.DEBUG if text == self._warned else logging.WARNING, "%s", text)
                self._warned = text
            self._on_connected(False)
            await asyncio.sleep(self._config.reconnect_ms / 1000)

    async def _follow(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(
                    host.strip("[]"), int(port), limit=2 * FRAME_SIZE_MAX
                )
        except OSError as error:  # a TimeoutError too
            raise ConnectionError(str(error)) from error
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        log = self._log
        if log.raw_end > log.end.position:
            log.truncate(log.end)  # part of an entry whose rest the master sends again
        self._compares_by_chain, self._begins_at_end = self._begins_at_end, False
        self._begin = log.end if self._compares_by_chain else self._comparison_begin()
        self._compared = self._begin.position
        self._idle_heartbeats = 0
        self._report(writer, self._compared)
        reporting = asyncio.create_task(self._report_regularly(writer))
        try:
            while True:
                await self._pushed(*await self._frame(reader))
                if self._compared > self._begin.position or self._compared >= log.raw_end:
                    self._on_connected(True)  # a heartbeat alone has shown nothing of its log
                if self._compared >= log.raw_end:
                    self._report(writer, log.raw_end)
        finally:
            reporting.cancel()

    async def _frame(self, reader: asyncio.StreamReader) -> tuple[int, bytes]:
        """Return the position and bytes of the next frame. Raises _LinkError, EOFError,
        TimeoutError, ConnectionError."""
        try:
            async with asyncio.timeout(self._config.silence_ms_max / 1000):
                position, size = PUSH.unpack(await reader.readexactly(PUSH.size))
                if not 0 <= size <= FRAME_SIZE_MAX:
                    raise _LinkError(f"a frame of {size} bytes")
                return position, await reader.readexactly(size)
        except OSError as error:  # a host that can't be reached, for one
            raise ConnectionError(str(error)) from error

    async def _report_regularly(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(self._config.heartbeat_ms / 1000)
            if writer.is_closing():
                return  # which whoever reads sees too
            self._report(writer, min(self._compared, self._log.raw_end))

    @staticmethod
    def _report(writer: asyncio.StreamWriter, position: int) -> None:
        send(writer, REPORT.pack(position))

    # --- comparing -----------------------------------------------------------------------------

    def _comparison_begin(self) -> LogBase:
        """Return the place before the last entry, or so many files before that. Raises OSError,
        CorruptLogError."""
        log = self._log
        if not self._steps_back:
            return log.last_before()
        return log.file_begin(self._steps_back)

    async def _pushed(self, position: int, data: bytes) -> None:
        """Take one frame: compare what this log has, write what it lacks."""
        log = self._log
        if self._compared == 0 == log.raw_end and position:
            self._begin_later(position)
        if position != self._compared:
            if not data:
                await self._master_is_elsewhere(position)
            raise _LinkError(f"bytes at {position} where those at {self._compared} were asked for")
        if not data:
            await self._heartbeat()
            return
        self._idle_heartbeats = 0
        known = min(len(data), max(0, log.raw_end - position))
        if known:
            ours = log.read(position, known)
            if ours != data[:known]:
                same = next(i for i in range(known) if ours[i] != data[i])
                await self._differs(position + same)
            self._compared += known
        if known < len(data):
            self._write(data[known:])
        if self._compared >= log.raw_end:
            self._steps_back = 0

    def _write(self, data: bytes) -> None:
        try:
            self._log.receive(data)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._has_room = False
            raise _LinkError("no room for more of the log") from error
        self._has_room = True
        self._compared = self._log.raw_end
        whole: list[Standing] = []
        try:
            while (standing := self._log.take(named=self._compares_by_chain)) is not None:
                self._compares_by_chain = False
                whole.append(standing)
        except FramingError as error:  # what came before bytes that are no entry counts
            if whole:
                self._on_received(whole)
            if self._compares_by_chain:
                raise self._nothing_in_common() from error
            raise
        if whole:
            self._on_received(whole)

    async def _heartbeat(self) -> None:
        """The master has nothing to push at this moment."""
        log = self._log
        if self._compared >= log.raw_end:
            return
        self._idle_heartbeats += 1
        if self._idle_heartbeats >= _IDLE_HEARTBEATS:
            await self._cut(f"the master's log ends at {self._compared}", self._compared)

    async def _master_is_elsewhere(self, position: int) -> None:
        """The master's heartbeat names another position than the one requested."""
        log = self._log
        if position == log.end.position > self._compared:
            self._begins_at_end = True
            return
        if position > self._compared:
            _log.error(
                "the master's log begins at %d, and this one ends at %d: copy the master's store",
                position,
                log.end.position,
            )
            return
        _log.error("the master's log ends at %d, before this one at %d", position, log.raw_end)
        if position <= log.begin.position:
            raise self._nothing_in_common()
        while self._comparison_begin().position > position:
            self._steps_back += 1

    async def _differs(self, position: int) -> None:
        """The logs part at `position`, or before the place where the comparison began. Raises
        StateDivergedError, _LinkError."""
        _log.error("this log differs from the master's at %d", position)
        place = self._place_before(position)
        if place.position == self._begin.position > self._log.begin.position:
            self._steps_back += 1
            raise _LinkError("the comparison begins further back")
        await self._cut(f"the logs differ from {position} on", position)

    def _place_before(self, position: int) -> LogBase:
        """Return the last place of this log, from the comparison's begin on, at or before
        `position`."""
        place = self._begin
        for standing in self._log.entries_behind(self._begin):
            if standing.after.position > position:
                break
            place = standing.after
        return place

    async def _cut(self, why: str, position: int) -> None:
        """Cut this log to what the master has. Raises StateDivergedError."""
        log = self._log
        place = self._place_before(position)
        if place.position == log.begin.position:
            raise self._nothing_in_common()
        lost = log.end.index - place.index
        await self._before_cut()
        log.truncate(place)
        self._steps_back = 0
        raise StateDivergedError(
            f"{why}: {lost} entries from {place.index + 1} on are dropped, the log ends at"
            f" {place.position}"
        )

    def _nothing_in_common(self) -> _LinkError:
        """Return the refusal to drop a whole log: a master that comes back without its disk must
        not take its slaves' logs away."""
        _log.error("this log and the master's have nothing in common: it is kept as it is")
        return _LinkError(
            "to follow this master remove the slave's store, to keep the slave's log make it master"
        )

    def _begin_later(self, position: int) -> None:
        """The master's log begins later, as it does for a RocketMQ master's new slave."""
        raise _LinkError(
            f"the master's log begins at {position}, and what stood before is needed: copy the"
            " master's store"
        )
