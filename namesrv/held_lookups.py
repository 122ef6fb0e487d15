"""Route lookups that are held briefly until a group's new leader registers.

Place in the data path: between the remoting server and `namesrv.server`. RocketMQ's clients look up
a route every 30 s and send nothing while it names no master: a client that looks up in the half
second between a leader's end and its successor's registration could not send for half a minute. So
its answer waits for that registration.

Invariants:
- A lookup is held at most until `_WAIT_MS_MAX` after the first lookup that found its group without
  a leader: the lookups of a client with many topics, one after the other, share that time.
- ledgermq's own clients don't wait: they find the leader themselves. Held lookups are bounded.
- Every lookup is answered once, in the order of arrival where they waited for the same group.

Source: none in RocketMQ, whose masters don't change by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from namesrv.route_table import RouteTable
from remoting.connections.connection import Connection
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import LANGUAGE_PYTHON, RemotingCommand

__all__ = ["HeldLookups"]

_WAIT_MS_MAX: Final = 1_500
_HELD_MAX: Final = 4_096


class HeldLookups:
    """Holds lookups on the running event loop. `pass_on` handles the requests."""

    def __init__(
        self, table: RouteTable, pass_on: Callable[[Connection, RemotingCommand], None]
    ) -> None:
        self._table = table
        self._pass_on = pass_on
        self._wait_until: dict[str, float] = {}  # group without a leader -> loop time
        self._held: list[tuple[Connection, RemotingCommand, asyncio.TimerHandle]] = []

    def on_request(self, connection: Connection, command: RemotingCommand) -> None:
        """Hold a route lookup whose topic has a group without a leader; pass all else on at once.

        A lookup is not held where the time to wait for its group is over, where it comes from a
        client of ours, or where `_HELD_MAX` are held. A registration answers those that waited for
        it.
        """
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            wait_s = self._wait_s(command)
            if wait_s > 0 and len(self._held) < _HELD_MAX:
                timer = asyncio.get_running_loop().call_later(
                    wait_s, self._release, connection, command
                )
                self._held.append((connection, command, timer))
                return
        self._pass_on(connection, command)
        if self._wait_until and command.code == RequestCode.REGISTER_BROKER:
            self._answer_ready()

    def stop(self) -> None:
        """Drop the held lookups; their connections are closed."""
        for _, _, timer in self._held:
            timer.cancel()
        self._held.clear()

    def _wait_s(self, command: RemotingCommand) -> float:
        """Return how long this lookup may be held, in seconds; 0: not at all."""
        topic = command.ext_fields.get("topic")
        if topic is None or command.language == LANGUAGE_PYTHON:
            return 0
        now = asyncio.get_running_loop().time()
        until = [
            self._wait_until.setdefault(name, now + _WAIT_MS_MAX / 1000)
            for name in self._table.leaderless_groups(topic)
        ]
        return max(until, default=now) - now

    def _answer_ready(self) -> None:
        """Answer the lookups whose groups all have a leader now; called after a registration."""
        leaderless = self._table.leaderless_groups()
        for name in [name for name in self._wait_until if name not in leaderless]:
            del self._wait_until[name]
        held, self._held = self._held, []
        for connection, command, timer in held:
            if self._wait_s(command) > 0:
                self._held.append((connection, command, timer))
            else:
                timer.cancel()
                self._answer(connection, command)

    def _release(self, connection: Connection, command: RemotingCommand) -> None:
        self._held = [item for item in self._held if item[1] is not command]
        self._answer(connection, command)

    def _answer(self, connection: Connection, command: RemotingCommand) -> None:
        if not connection.closed:
            self._pass_on(connection, command)
