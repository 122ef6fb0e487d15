"""The part `routes`: queries the routes of every name server, and of the leaders themselves.

Place in the data path: GET_ROUTEINFO_BY_TOPIC at each name server through the part's own proxies;
GET_TOPIC_CONFIG at each group's ready leader, whose status is read past every proxy. Meanwhile the
permissions of one topic change, and after each change somebody sends to it and reads it; another
topic comes and goes, deleted in the end. The first of the workload's own topics, which nobody
changes, is queried, too, and so are those of the part `deletions`, where the scenario has them.
Beside all that `route_lookups` looks the workload's topic up as RocketMQ's clients do.

Invariants: one operation per name server and broker group tells what the answer says of that group;
a leader's own answer counts only where it led before and after it; once senders have stopped,
rounds go on until all agree, or for as long as a wrong route may lawfully stay, and once more after
the cluster is whole; each permission comes once in a round of all, and READ is taken away once more
when senders have stopped.

Source: the run format (route; M2, M3, M9 to M11); RocketMQ RouteInfoManager.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from chaos.recording.history import QueueRow
from chaos.scenario.part_sections import RoutesSection
from chaos.scenario.scenario import route_expiry_ms
from chaos.systems.base import SystemFailedError
from chaos.workload.actor import Actor, Operation, error_text
from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.administration.queue_reader import QueueReader
from chaos.workload.parts.administration.route_lookups import RouteLookups
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.part_sender import PartSender
from chaos.workload.parts.common.topic_admin import TOOLS, TopicAdmin, queue_rows
from client.connection.answers import error_of, error_of_remoting
from client.connection.instance import ClientInstance
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError, MalformedAnswerError
from client.message import MessageQueue
from client.produce.producer import Producer, ProducerSettings
from remoting.errors import BodyError, RemotingError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.route import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    TopicRouteData,
    decode_route,
)

__all__ = ["SPEC", "members_text"]

GONE_TOPIC: Final = "routes-gone"
PERM_TOPIC: Final = "routes-perm"
OWNER: Final = "owner"
OURS: Final = "ledgermq"
TIMEOUT_MS: Final = 2_000
AGAIN_S: Final = 0.3
CALM_S: Final = 1.0
_MARGIN_S: Final = 2.0
_PERMS: Final = (PERM_READ, PERM_WRITE, PERM_READ | PERM_WRITE)
READERS: Final = "routes-readers"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """What an answer says of a topic at one broker group."""

    queues: tuple[int, ...]
    perm: int | None
    members: str | None


class _Routes:
    def __init__(self, kit: PartKit) -> None:
        section: RoutesSection = kit.section
        self._kit = kit
        self._section = section
        others = {queue.topic for queue in kit.context.part_queues.get("deletions", ())}
        self._queues = kit.context.part_queues["routes"]
        own = kit.context.scenario.workload.topics[:1]
        self._topics = [PERM_TOPIC, GONE_TOPIC, *own, *sorted(others)]
        self._retained_topic = (own or [PERM_TOPIC])[0]  # in the routes of all groups, all the time
        self._changing = 2
        self._idle = asyncio.Event()
        self._wake = asyncio.Event()
        self._draining = False
        self._agreed = False
        self._give_up_s: float | None = None
        self._rounds_left = 2

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """Return the group of the reader, which is owed nothing: it may not always read."""
        return {
            READERS: {
                "kind": "cluster",
                "at_least_once": False,
                "ordered": False,
                "topics": [PERM_TOPIC],
            }
        }

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        context = self._kit.context
        admin_slot, query_slot = self._kit.slots["routes-admin"], self._kit.slots["routes-ask"]
        use_slot = self._kit.slots["routes-use"]
        admin, query_client = admin_slot.next_client(), query_slot.next_client()
        async with (
            make_tool(context, admin_slot) as tool,
            make_tool(context, query_slot) as query_tool,
            self._producer(use_slot) as producer,
            self._consumer(use_slot) as consumer,
            asyncio.TaskGroup() as tasks,
        ):
            user = _User(self._kit, producer, consumer, self._queues, use_slot.next_client())
            for number, topic in enumerate((PERM_TOPIC, GONE_TOPIC)):
                changed = TopicAdmin(
                    context,
                    tool.instance,
                    topic=topic,
                    root=f"{admin}.p{number}",
                    client=admin,
                )
                # Whoever changes a topic looks at once whether name servers know.
                own = _Questions(self._kit, tool.instance, admin, root=f"{admin}.q{number}")
                if topic == PERM_TOPIC:
                    tasks.create_task(self._change_perm(changed, own, user, stop, drained))
                else:
                    tasks.create_task(self._come_and_go(changed, own, stop, drained))
            questions = _Questions(self._kit, query_tool.instance, query_client)
            tasks.create_task(self._query(questions, stop, drained))
            if context.world.system.name == OURS:  # RocketMQ's name servers hold no lookup
                self._look_up(query_tool.instance, query_client, tasks, stop)

    def _look_up(
        self,
        instance: ClientInstance,
        query_client: str,
        tasks: asyncio.TaskGroup,
        stop: asyncio.Event,
    ) -> None:
        """Have clients as RocketMQ's look up a topic at each name server, until `stop`."""
        context = self._kit.context
        expectations = Expectations(
            context.history, client=f"{query_client}-held", client_group=TOOLS
        )
        for server in context.world.layout.name_servers:
            lookups = RouteLookups(
                instance, expectations, server=server, topic=self._retained_topic
            )
            tasks.create_task(lookups.run(stop))

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        """Return whether all agree, or a wrong route has stayed for longer than it may."""
        if self._changing:
            return False
        now_s = asyncio.get_running_loop().time()
        if self._give_up_s is None:
            expire_s = route_expiry_ms(self._kit.context.scenario) / 1000
            self._give_up_s = now_s + expire_s + _MARGIN_S
            self._wake.set()
        return self._agreed or now_s >= self._give_up_s

    def has_read(self) -> bool:
        """Return whether two rounds have been begun since the first call."""
        if not self._draining:
            self._draining = True
            self._wake.set()
        return self._rounds_left <= 0

    async def _change_perm(
        self,
        admin: TopicAdmin,
        own: _Questions,
        user: _User,
        stop: asyncio.Event,
        drained: asyncio.Event,
    ) -> None:
        rng = random.Random(self._kit.rng.getrandbits(64))
        left: list[int] = []
        while not await sleep_until_set(stop, rng.expovariate(1 / self._section.change_s)):
            left = left or rng.sample(_PERMS, len(_PERMS))
            if await admin.create(drained, left.pop()):
                await own.name_servers(PERM_TOPIC)
            await user.read()
            await user.send()
        # In the end it is none that a name server was told at first, and queues can be read.
        for perm in (PERM_WRITE, PERM_READ):
            if await admin.create(drained, perm):
                await own.name_servers(PERM_TOPIC)
            await user.read()
        self._change_done()

    def _producer(self, slot: Slot) -> Producer:
        settings = ProducerSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings())
        return Producer(
            "routes-producers", self._kit.context.name_servers, slot.dial, settings=settings
        )

    def _consumer(self, slot: Slot) -> PullConsumer:
        settings = PullConsumerSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings())
        return PullConsumer(READERS, self._kit.context.name_servers, slot.dial, settings=settings)

    async def _come_and_go(
        self, admin: TopicAdmin, own: _Questions, stop: asyncio.Event, drained: asyncio.Event
    ) -> None:
        rng = random.Random(self._kit.rng.getrandbits(64))
        while not await sleep_until_set(stop, rng.expovariate(1 / self._section.change_s)):
            if await admin.create(drained):
                await own.name_servers(GONE_TOPIC)
            await sleep_until_set(stop, rng.expovariate(1 / self._section.change_s))
            await admin.delete(drained)
        self._change_done()

    def _change_done(self) -> None:
        self._changing -= 1
        if not self._changing:
            self._idle.set()

    async def _query(
        self, questions: _Questions, stop: asyncio.Event, drained: asyncio.Event
    ) -> None:
        while not drained.is_set():
            after_changes = not self._changing
            draining = self._draining
            agreed = True
            for topic in self._topics:
                agreed &= await questions.round(topic)
            self._agreed = after_changes and agreed
            if draining:
                self._rounds_left -= 1
            if not stop.is_set():
                await sleep_until_set(stop, self._section.every_s)
                continue
            hurries = not self._agreed or (self._draining and self._rounds_left > 0)
            await sleep_until_set(self._wake, AGAIN_S if hurries else CALM_S)
            self._wake.clear()


class _User:
    """Sends to the topic whose permissions change and reads it, right after each change."""

    def __init__(
        self,
        kit: PartKit,
        producer: Producer,
        consumer: PullConsumer,
        queues: Sequence[MessageQueue],
        client: str,
    ) -> None:
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._queues = queues
        self._sender = PartSender(
            kit.context, producer, root=f"{client}.send", ref=PERM_TOPIC, rng=self._rng
        )
        self._reader = QueueReader(kit.context, consumer, f"{client}.read", queues)

    async def send(self) -> None:
        await self._sender.send(self._sender.make(PERM_TOPIC), self._rng.choice(self._queues))

    async def read(self) -> None:
        for _ in self._queues:
            await self._reader.poll_next()


class _Questions:
    """The process that queries. `root`: its name, if it is not that of its client."""

    def __init__(
        self, kit: PartKit, instance: ClientInstance, client: str, *, root: str | None = None
    ) -> None:
        self._context = kit.context
        self._instance = instance
        self._actor = Actor(
            kit.context.history, root=root or client, client=client, client_group=TOOLS
        )

    async def round(self, topic: str) -> bool:
        """Query all who know the topic; return whether they agree with the leaders."""
        agreed = True
        layout = self._context.world.layout
        for group in layout.groups:
            owned = await self._query_owner(topic, group)
            for server in layout.name_servers:
                shown = await self._query_name_server(topic, group, server.name, server.address)
                agreed &= owned is not None and shown == owned
        return agreed

    async def name_servers(self, topic: str) -> None:
        """Query what every name server has of the topic at each broker group."""
        layout = self._context.world.layout
        for server in layout.name_servers:
            for group in layout.groups:
                await self._query_name_server(topic, group, server.name, server.address)

    async def _query_owner(self, topic: str, group: str) -> _Shown | None:
        """Query what the group's ready leader has; None where it did not lead all the while."""
        with self._actor.operation(
            "route", broker_group=group, topic=topic, key=OWNER
        ) as operation:
            try:
                found = await self._owner_answer(topic, group)
            except (ClientError, SystemFailedError) as error:
                operation.complete("info", error=error_text(error))
                return None
            if found is None:
                operation.complete("info", error="no node leads all the while")
                return None
            node, shown = found
            self._complete(operation, group, topic, shown, node=node)
        return shown

    async def _owner_answer(self, topic: str, group: str) -> tuple[str, _Shown] | None:
        system = self._context.world.system
        for place in system.layout.groups[group]:
            before = await system.status(place.name)
            if before is None or not before.ready:
                continue
            config = await self._topic_config(topic, place.address)
            after = await system.status(place.name)
            if after is None or not after.ready or after.term != before.term:
                return None
            members = members_text(place.node, {*after.voters, *after.learners})
            if config is None:
                return place.node, _Shown(queues=(), perm=None, members=None)
            count = max(config.read_queue_nums, config.write_queue_nums)
            queues = tuple(range(count))
            return place.node, _Shown(queues=queues, perm=config.perm, members=members)
        return None

    async def _topic_config(self, topic: str, address: str) -> TopicConfig | None:
        command = RemotingCommand(code=RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": topic})
        answer = await self._request(address, command)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != 0:
            raise error_of(answer.code, answer.remark, address)
        try:
            return fastjson.decode(answer.body, TopicConfig)
        except (BodyError, msgspec.ValidationError) as error:
            raise MalformedAnswerError(f"topic {topic} at {address}: {error}") from error

    async def _query_name_server(
        self, topic: str, group: str, name: str, address: str
    ) -> _Shown | None:
        with self._actor.operation(
            "route", broker_group=group, topic=topic, node=name
        ) as operation:
            try:
                shown = await self._name_server_answer(topic, group, address)
            except ClientError as error:
                operation.failed(error)
                return None
            self._complete(operation, group, topic, shown, node=name)
        return shown

    async def _name_server_answer(self, topic: str, group: str, address: str) -> _Shown:
        command = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic}
        )
        answer = await self._request(address, command)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return _Shown(queues=(), perm=None, members=None)
        if answer.code != 0:
            raise error_of(answer.code, answer.remark, address)
        try:
            data = decode_route(answer.body)
        except BodyError as error:
            raise MalformedAnswerError(f"route of {topic} at {address}: {error}") from error
        return self._of_group(data, group)

    def _of_group(self, data: TopicRouteData, group: str) -> _Shown:
        queues = next((each for each in data.queue_datas if each.broker_name == group), None)
        if queues is None:
            return _Shown(queues=(), perm=None, members=None)
        brokers = next((each for each in data.broker_datas if each.broker_name == group), None)
        addresses = {} if brokers is None else brokers.broker_addrs
        nodes = {at: self._context.node(address) or address for at, address in addresses.items()}
        count = max(queues.read_queue_nums, queues.write_queue_nums)
        return _Shown(
            queues=tuple(range(count)),
            perm=queues.perm,
            members=members_text(nodes.get(MASTER_ID), set(nodes.values())),
        )

    def _complete(
        self, operation: Operation, group: str, topic: str, shown: _Shown, *, node: str
    ) -> None:
        queues: Sequence[QueueRow] = queue_rows(group, topic, len(shown.queues))
        operation.complete(
            "ok",
            assigned=queues,
            status=None if shown.perm is None else str(shown.perm),
            ref=shown.members,
            node=node,
        )

    async def _request(self, address: str, command: RemotingCommand) -> RemotingCommand:
        try:
            return await self._instance.rpc.request(address, command, TIMEOUT_MS)
        except RemotingError as error:
            raise error_of_remoting(error, address) from error


def members_text(leader: str | None, members: set[str]) -> str:
    """Return the leader, or "-", and all other members in order, with blanks between."""
    return " ".join([leader or "-", *sorted(members - {leader})])


SPEC: Final = PartSpec(
    name="routes",
    summary="what name servers say of topics, against what the leaders have; permissions at work",
    topics=lambda section: (PERM_TOPIC,),
    slots=lambda section: ("routes-admin", "routes-ask", "routes-use"),
    make=_Routes,
    judged_by=("M2", "M3", "M9", "M10", "M11", "M12", "M16"),
)
