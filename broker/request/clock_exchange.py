"""Exchange of clocks among the replicas, from which this broker computes its group's time.

Place in the data path: the shell around `broker.state.group_clock`. Each replica requests
LEDGERMQ_CLOCK from each other one once a second, or ten times a second until it knows the group's
time; the request needs no account. Processors and rounds use `now_ms`.

Invariants: an answer that is malformed, another group's, or missing, changes nothing; until enough
replicas have answered, or three seconds have passed, `is_settled` is false, and the broker does not
act as leader: it would stamp entries by its own wall clock alone, and stamps stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from broker.request.request import Request
from broker.state.group_clock import ClockReading, GroupClock
from broker.state.state import BrokerState
from raft.messages import NodeId
from raft.replicated_log import LogStatus
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["ClockExchange"]

_INTERVAL_S: Final = 1.0
_INTERVAL_UNSURE_S: Final = 0.1
_TIMEOUT_MS: Final = 1_000
_SETTLES_IN_MS_MAX: Final = 3_000  # three lost requests; then a group of one reachable clock
_TIME_MS_MAX: Final = 1 << 53


class ClockExchange:
    """Clock exchange of one broker; `replicas` has the remoting address of each replica, perhaps
    its own, too."""

    def __init__(
        self,
        *,
        group: str,
        node: str,
        replicas: Mapping[str, str],
        state: BrokerState,
        status: Callable[[], LogStatus],
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._group = group
        self._others = {NodeId(name): ip for name, ip in replicas.items() if name != node}
        self._state = state
        self._status = status
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._clock = GroupClock(1 + len(self._others))
        self._queries_began_ms: int | None = None
        self.tick(leads=False)

    def now_ms(self) -> int:
        """Return group time in Unix milliseconds."""
        return self._clock.now_ms(self._monotonic_ms(), self._state.store_timestamp_ms)

    def stamp_ms(self) -> int:
        """Return group time for an entry of the log."""
        return self._clock.stamp_ms(self._monotonic_ms(), self._state.store_timestamp_ms)

    def lead_ms(self) -> int:
        """Return how far group time certainly is ahead of the replicas' wall clocks."""
        return self._clock.lead_ms

    def is_settled(self) -> bool:
        """Whether group time is known, or enough time has passed without enough answers."""
        if self._clock.is_sure:
            return True
        began_ms = self._queries_began_ms
        if began_ms is None or self._clock.is_checking:
            return False
        return self._monotonic_ms() - began_ms >= _SETTLES_IN_MS_MAX

    @property
    def has_own_time(self) -> bool:
        """Whether group time started with this replica: no reachable replica knew the group's, so
        that it may have jumped by the difference of their clocks."""
        return self._clock.is_sure and self._clock.is_own

    def tick(self, *, leads: bool) -> None:
        """Correct group time; to be called a few times a second, and once the log is applied."""
        self._clock.tick(
            self._monotonic_ms(), self._wall_ms(), self._state.store_timestamp_ms, leads=leads
        )

    def answer(self, request: Request) -> None:
        """Answer LEDGERMQ_CLOCK."""
        reading = self._clock.reading(
            self._monotonic_ms(), self._wall_ms(), self._state.store_timestamp_ms
        )
        fields = {"group": self._group, "wallMillis": str(reading.wall_ms)}
        if reading.group_ms is not None:
            fields["groupMillis"] = str(reading.group_ms)
        request.reply(ResponseCode.SUCCESS, None, fields)

    async def run(self, remoting: RemotingClient) -> None:
        """Request the clocks of all others, until cancelled."""
        self._queries_began_ms = self._monotonic_ms()
        async with asyncio.TaskGroup() as tasks:
            for node, address in self._others.items():
                tasks.create_task(self._follow(remoting, node, address))

    async def _follow(self, remoting: RemotingClient, node: NodeId, address: str) -> None:
        while True:
            await self._query(remoting, node, address)
            await asyncio.sleep(_INTERVAL_S if self._clock.is_sure else _INTERVAL_UNSURE_S)

    async def _query(self, remoting: RemotingClient, node: NodeId, address: str) -> None:
        queried_ms = self._monotonic_ms()
        command = RemotingCommand(code=RequestCode.LEDGERMQ_CLOCK)
        try:
            answer = await remoting.request(address, command, _TIMEOUT_MS)
        except RemotingError:
            return  # it is down, or cut off: its last reading ages
        reading = self._reading(answer)
        if reading is None:
            return
        status = self._status()
        self._clock.heard(
            node,
            reading,
            queried_ms=queried_ms,
            monotonic_ms=self._monotonic_ms(),
            is_leader=status.leader_id == node and not status.ready,
        )
        self.tick(leads=status.ready)

    def _reading(self, answer: RemotingCommand) -> ClockReading | None:
        fields = answer.ext_fields
        if answer.code != ResponseCode.SUCCESS or fields.get("group") != self._group:
            return None
        wall_ms, group_ms = _time_ms(fields, "wallMillis"), _time_ms(fields, "groupMillis")
        return None if wall_ms is None else ClockReading(wall_ms=wall_ms, group_ms=group_ms)


def _time_ms(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_TIME_MS_MAX))):
        return None
    return int(text)
