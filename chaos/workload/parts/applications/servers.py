"""Topics that come, change and go while registrations are under way: every name server shows it.

Place in the data path: `broker.process.registration`, which registers with each name server by
itself, and `client.administer.admin`, whose deletions go to all of them. Topics are made and
changed several at a time, so that most changes fall into a registration that another one has begun;
in some rounds what brokers send to one of the name servers is late, so that all of them but the
first do, and none is behind them. Then topics are deleted by an administrator, in a namespace or in
none, and made anew.

Invariants: a change waits for the registration that is under way and for its own, and is answered
without them only after a second; that it took so long says nothing where a commit and a route take
long as well, as on a machine that is busy; a name server is polled until it shows what was
acknowledged; nothing is deleted while a name server is slow, since what was sent to it before may
arrive behind the deletion: no name server is slowed where other parts delete there.

Source: RocketMQ BrokerController.registerIncrementBrokerData, DeleteTopicSubCommand (which deletes
at each name server); docs/CLIENT.md (administration).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from chaos.links.base import Link, LinkEffect, LinkShape
from chaos.workload.namespaces import wire_name
from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.drill import UNLISTED
from chaos.workload.parts.common.leader_requests import create_topic_command
from chaos.workload.parts.operator.requests import OperatorRequests
from chaos.workload.parts.operator.topics import route_text
from client.administer.admin import Admin
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["UpdatedNameServers"]

ROUNDS: Final = 6
TOPICS: Final = 4  # of a round
CHANGES: Final = 3  # of a topic of a round, at most
APART_S: Final = 0.02  # at most, between changes of a round
QUEUES: Final = (1, 2, 3, 5, 8)
PERMS: Final = (2, 4, 6)
SHOWN_S: Final = 2.0
WAITED_S: Final = 0.9  # a broker waits a second at most for a name server
QUICK_S: Final = 0.1  # of a commit and a route, for two registrations to take less than that
GROUP: Final = "applications-servers-readers"
SLOW: Final = LinkShape(latency_ms=150, jitter_ms=0, rate_kb_s=0)
SETTLED_S: Final = 0.5  # by when what was under way to a slow name server has arrived
OTHERS: Final = frozenset({"operator", "routes", "deletions"})  # who delete at name servers, too
_NO_ROUTE: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """A topic of a round; `namespace` of the administrator whose it is, "" for none."""

    name: str
    namespace: str

    @property
    def wire(self) -> str:
        return wire_name(self.namespace, self.name) if self.namespace else self.name


class UpdatedNameServers:
    """Topics of one broker group, and all name servers, queried one by one."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._servers = bench.kit.context.world.layout.name_servers
        self._requests = OperatorRequests(bench.admin.instance)
        self._tool = bench.tool(GROUP)
        self._space = f"{UNLISTED}{bench.name}"

    async def run(self) -> None:
        """Make, change and delete topics, round by round. Raises ClientError, LinksError."""
        bench = self._bench
        async with bench.admin_of(self._space) as spaced, self._tool:
            admins: Mapping[str, Admin] = {"": bench.admin, self._space: spaced}
            for number in range(ROUNDS):
                names = [f"{bench.topic}-{number}-{each}" for each in range(TOPICS)]
                spaces = bench.rng.choices(tuple(admins), k=TOPICS)
                topics = [
                    _Topic(name=name, namespace=space)
                    for name, space in zip(names, spaces, strict=True)
                ]
                is_slow = number % 2 == 1
                async with self._one_slow(is_slow):
                    await self._hold(await self._change(topics, 1 if is_slow else CHANGES))
                gone = bench.rng.sample(topics, TOPICS // 2)
                for topic in gone:
                    await admins[topic.namespace].delete_topic(topic.name)
                await self._hold({topic: str(_NO_ROUTE) for topic in gone})
                await self._hold(await self._change(gone, CHANGES))

    @contextlib.asynccontextmanager
    async def _one_slow(self, is_slow: bool) -> AsyncIterator[None]:
        """Have what brokers send to one of the name servers be late, where links can do that."""
        bench = self._bench
        links = bench.kit.context.world.links
        others = OTHERS & bench.kit.context.part_queues.keys()
        if not is_slow or others or LinkEffect.SLOW not in links.effects:
            yield
            return
        server = bench.rng.choice(self._servers).name
        brokers = [place.name for place in bench.kit.context.world.layout.brokers]
        await links.slow([Link(who=each, whom=server) for each in brokers], SLOW, bench.name)
        try:
            yield
        finally:
            await links.heal(bench.name)
        await asyncio.sleep(SETTLED_S)

    async def _change(self, topics: list[_Topic], changes_max: int) -> Mapping[_Topic, str]:
        """Give topics other settings, all at about one time; return what routes have to show of
        each. Raises ClientError."""
        rng = self._bench.rng
        is_quick = await self._is_quick(topics[0])
        wanted: dict[_Topic, str] = {}
        tasks = []
        for topic in topics:
            drawn = [
                (rng.choice(QUEUES), rng.choice(PERMS)) for _ in range(rng.randint(1, changes_max))
            ]
            queues, perm = drawn[-1]
            wanted[topic] = f"read={queues} write={queues} perm={perm} flag=0"
            tasks.append(self._make(topic, drawn, is_quick=is_quick))
        await asyncio.gather(*tasks)
        return wanted

    async def _is_quick(self, topic: _Topic) -> bool:
        """Make a topic; return whether a commit and a route are quick. Raises ClientError."""
        rng, loop = self._bench.rng, asyncio.get_running_loop()
        await self._make_one(topic, rng.choice(QUEUES), rng.choice(PERMS))
        began_s = loop.time()
        queue = MessageQueue(topic.wire, self._bench.broker_group, 0)
        await self._tool.commit_offset(queue, 0)
        for server in self._servers:
            await self._route(topic, server.address)
        return loop.time() - began_s < QUICK_S

    async def _make(self, topic: _Topic, changes: list[tuple[int, int]], *, is_quick: bool) -> None:
        for queues, perm in changes:
            await asyncio.sleep(self._bench.rng.uniform(0, APART_S))
            took_s = await self._make_one(topic, queues, perm)
            self._bench.hold(
                f"whether a change of {topic.wire} beside others waits in vain for name servers",
                expected=False if is_quick else None,
                answered=took_s > WAITED_S,
            )

    async def _make_one(self, topic: _Topic, queues: int, perm: int) -> float:
        """Make a topic, or change it; return how many seconds that took. Raises ClientError."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        command = create_topic_command(topic.wire, queues=queues, perm=perm)
        answer = await self._bench.request(RequestCode(command.code), command.ext_fields)
        self._bench.hold(f"change of {topic.wire}", expected=0, answered=answer.code)
        return loop.time() - began_s

    async def _hold(self, wanted: Mapping[_Topic, str]) -> None:
        """Hold that each name server comes to show that of each topic. Raises ClientError."""
        await asyncio.gather(
            *(
                self._bench.comes(
                    f"route of {topic.wire} at {server.name}",
                    partial(self._route, topic, server.address),
                    expected=text,
                    within_s=SHOWN_S,
                )
                for topic, text in wanted.items()
                for server in self._servers
            )
        )

    async def _route(self, topic: _Topic, address: str) -> str:
        """Return what a name server shows of a topic. Raises ClientError."""
        command = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic.wire}
        )
        route = await self._requests.json_at(address, command, nothing=_NO_ROUTE)
        return route_text(route, self._bench.broker_group) or str(_NO_ROUTE)
