"""Route lookups as RocketMQ's clients send them, which name servers hold while a group has no
leader; held against a model of how long.

Place in the data path: the part `routes` has some of them at work at each name server, in parallel
and all the time, so that several elections, one behind the other, fall into them.

The model: an answer that names no leader of a group comes a while after the first lookup that can
have found the group without one, and that is after the last answer in which it had one. Whoever
gets it sooner could send to nobody until its next lookup, half a minute later.

Invariants: only times of the one machine that asks are compared: what a name server or a link adds
makes a lookup longer, never shorter; a lookup that was not answered may have been served, and
counts as begun. No other client of a run is one of RocketMQ's.

Source: `namesrv.held_lookups` (none in RocketMQ); RocketMQ ClientConfig.pollNameServerInterval;
docs/RUN_FORMAT.md (ask; M12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.cluster.layout import NameServerPlace
from chaos.workload.expectations import Expectations
from chaos.workload.pace import sleep_until_set
from client.connection.instance import ClientInstance
from remoting.errors import BodyError, RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import LANGUAGE_JAVA, RemotingCommand
from remoting.protocol.route import MASTER_ID, decode_route

__all__ = ["Lookup", "RouteLookups", "first_without_leader"]

CLIENTS: Final = 3  # at each name server
EVERY_S: Final = 0.1
HELD_S: Final = 1.5
GRAIN_S: Final = 0.02  # of clocks and timers
TIMEOUT_MS: Final = 5_000
RETAINED_S: Final = 10.0  # beyond all timeouts


@dataclass(slots=True, kw_only=True, eq=False)
class Lookup:
    """One lookup at a name server, and what it said of each group: whether it has a leader."""

    begun_s: float
    ended_s: float | None = None  # None: not yet
    shown: Mapping[str, bool]


def first_without_leader(lookups: Sequence[Lookup], group: str, last: Lookup) -> float:
    """Return when the first of a name server's lookups was begun that can have found a group
    without a leader in the time in which `last` has: none that was over before the group was shown
    with one for the last time."""
    with_leader = [
        each
        for each in lookups
        if each.shown.get(group) and each.ended_s is not None and each.ended_s <= last.begun_s
    ]
    led_s = max((each.begun_s for each in with_leader), default=0.0)
    return min(
        each.begun_s
        for each in lookups
        if each not in with_leader and (each.ended_s is None or each.ended_s >= led_s)
    )


class RouteLookups:
    """Lookups of one topic at one name server."""

    def __init__(
        self,
        instance: ClientInstance,
        expectations: Expectations,
        *,
        server: NameServerPlace,
        topic: str,
    ) -> None:
        self._instance = instance
        self._expectations = expectations
        self._server = server
        self._topic = topic
        self._lookups: list[Lookup] = []

    async def run(self, ends: asyncio.Event) -> None:
        """Look the topic up, until `ends`."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CLIENTS):
                tasks.create_task(self._look_up_on(ends))

    async def _look_up_on(self, ends: asyncio.Event) -> None:
        while not await sleep_until_set(ends, EVERY_S):
            await self._look_up()

    async def _look_up(self) -> None:
        loop = asyncio.get_running_loop()
        lookup = Lookup(begun_s=loop.time(), shown={})
        self._lookups = [each for each in self._lookups if each.begun_s > loop.time() - RETAINED_S]
        self._lookups.append(lookup)
        command = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
            language=LANGUAGE_JAVA,
            ext_fields={"topic": self._topic},
        )
        try:
            answer = await self._instance.rpc.request(self._server.address, command, TIMEOUT_MS)
            route = decode_route(answer.body) if answer.code == 0 else None
        except (RemotingError, BodyError):
            return  # it may be served yet
        lookup.ended_s = loop.time()
        if route is not None:
            lookup.shown = {
                each.broker_name: MASTER_ID in each.broker_addrs for each in route.broker_datas
            }
        for group, has_leader in lookup.shown.items():
            if not has_leader:
                self._hold(lookup, group, lookup.ended_s)

    def _hold(self, lookup: Lookup, group: str, ended_s: float) -> None:
        """Hold how long it took for an answer to come that names no leader."""
        first_s = first_without_leader(self._lookups, group, lookup)
        waited_ms = round(1_000 * (ended_s - first_s))
        expected = f"{HELD_S:g} s or later"
        is_right = ended_s - first_s >= HELD_S - GRAIN_S
        self._expectations.hold(
            f"when {self._server.name} answers a client of RocketMQ's that {group} has no leader",
            expected=expected,
            answered=expected if is_right else f"{waited_ms} ms after it had one",
        )
