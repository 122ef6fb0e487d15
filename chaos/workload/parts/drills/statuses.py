"""Drills of what brokers have from members: several members of one group, of which some answer,
some refuse, some send what nobody can read, and some are silent; what an administrator is shown of
each has to be its own.

Place in the data path: `drills` makes one with each new group, whose members are clients of its
own that consume nothing; INVOKE_BROKER_TO_GET_CONSUMER_STATUS and GET_CONSUMER_RUNNING_INFO at the
leader, which requests them over the members' connections.

The model: what each member answers with, which is written here and unlike any other's. A member
from which nothing comes is not shown, whoever else is. Leaders learn of members by heartbeats, so
answers are judged in calm times.

Source: RocketMQ Broker2Client.getConsumeStatus, AdminBrokerProcessor, GetConsumerStatusBody.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

from chaos.workload.context import Slot
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import Drill, EndedError, Unsure
from client.connection.heartbeat import ConsumeFrom, ConsumerGroup, MessageModel, Subscription
from client.connection.instance import ClientInstance
from client.errors import ClientError
from remoting.connections.connection import Connection
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.queue_table import parse_queue_name

__all__ = ["StatusDrill"]

MEMBERS: Final = (3, 6)
KNOWN_WITHIN_S: Final = 4.0  # a leader knows all members by then, in calm times
POLL_S: Final = 0.1
QUERIES: Final = (2, 3)
OFFSETS_MAX: Final = 1_000
QUEUES_MAX: Final = 3
ROUTE_MS: Final = 2_000
WITHIN_MS: Final = 8_000  # brokers wait 5 s for a member that is silent
AT_ONCE: Final = ("answers", "answers", "has none", "refuses", "garbles")
SILENT: Final = "is silent"
_REFUSED: Final = 1


class StatusDrill:
    """One group, and its members."""

    def __init__(
        self, drill: Drill, group: str, *, slot: Slot, name_servers: Sequence[str]
    ) -> None:
        self.drill = drill
        self._group = group
        self._rng = drill.rng
        self._members = [
            _Member(ClientInstance(name_servers, dial=slot.dial, settings=slot.instance_settings()))
            for _ in range(drill.rng.randint(*MEMBERS))
        ]

    async def run(self) -> None:
        """Have members join, and query them, the silent ones last. Raises Unsure, EndedError."""
        async with asyncio.TaskGroup() as starts:
            for member in self._members:
                starts.create_task(member.instance.start())
        try:
            for member in self._members:
                await member.join(self._group, self.drill.queue.topic)
            await self._until_known()
            for manners in (AT_ONCE, (*AT_ONCE, SILENT, SILENT)):
                for _ in range(self._rng.randint(*QUERIES)):
                    self._draw(manners)
                    await self._query_status("")
                    await self._query_status(self._rng.choice(self._members).instance.client_id)
                    await self._query_running_info()
        finally:
            for member in self._members:
                await member.instance.abort()
        raise Unsure  # the next group has other members

    def _draw(self, manners: Sequence[str]) -> None:
        """Draw what each member does next: one of them answers, and one does not."""
        at = self._rng.sample(range(len(self._members)), 2)
        for number, member in enumerate(self._members):
            member.manner = self._rng.choice(manners)
            if number == at[0]:
                member.manner = "answers"
            elif number == at[1]:
                member.manner = manners[-1]
            queues = self._rng.sample(range(QUEUES_MAX), self._rng.randint(1, QUEUES_MAX))
            member.offsets = {queue: self._rng.randrange(OFFSETS_MAX) for queue in queues}
            member.place = {
                "topic": self.drill.queue.topic,
                "brokerName": self.drill.queue.broker_name,
            }

    async def _until_known(self) -> None:
        """Wait until the leader knows all members. Raises Unsure where it does not, EndedError."""
        wanted = sorted(member.instance.client_id for member in self._members)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + KNOWN_WITHIN_S
        while loop.time() < end_s:
            try:
                answer, _ = await self.drill.call(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group}
                )
            except ClientError as error:
                raise Unsure from error
            if sorted(json.loads(answer.body or b"{}").get("consumerIdList") or ()) == wanted:
                return
            if await sleep_until_set(self.drill.ends, POLL_S):
                raise EndedError
        raise Unsure

    async def _query_status(self, client_id: str) -> None:
        """Query the offsets of all members, or of one."""
        shown = {
            number: member.shown()
            for number, member in enumerate(self._members)
            if client_id in {"", member.instance.client_id} and member.is_heard
        }
        which = "all" if not client_id else str(self._number_of(client_id))
        manners = ", ".join(member.manner for member in self._members)
        await self.drill.request(
            f"status of {which} of the members of {self._group}, of whom each {manners}",
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            {"group": self._group, "topic": self.drill.queue.topic, "clientAddr": client_id},
            expected=f"0 {shown}",
            show=self._show_status,
            is_calm=True,
            timeout_ms=WITHIN_MS,
        )

    def _number_of(self, client_id: str) -> int | str:
        ids = [member.instance.client_id for member in self._members]
        return ids.index(client_id) if client_id in ids else client_id

    def _show_status(self, answer: RemotingCommand) -> str:
        if answer.code != 0:
            return str(answer.code)
        try:
            body = fastjson.decode(answer.body, dict[str, Any])
            by_number = {
                self._number_of(client_id): _shown(
                    {parse_queue_name(name).queue_id: offset for name, offset in table.items()}
                )
                for client_id, table in body.get("consumerTable", {}).items()
            }
        except BodyError as error:
            return f"unreadable: {error}"
        return f"0 {dict(sorted(by_number.items(), key=lambda row: str(row[0])))}"

    async def _query_running_info(self) -> None:
        """Query what one member says of itself, which is passed on as it is; of none that is
        silent, for which a broker waits long."""
        number = self._rng.randrange(len(self._members))
        member = self._members[number]
        if member.manner == SILENT:
            return
        is_refused = member.manner == "refuses"
        await self.drill.request(
            f"running info of member {number} of {self._group}, which {member.manner}",
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            {"consumerGroup": self._group, "clientId": member.instance.client_id},
            expected=f"{_REFUSED if is_refused else 0} {member.body().decode()}",
            show=lambda answer: f"{answer.code} {answer.body.decode(errors='replace')}",
            is_calm=True,
            may_be=frozenset({_REFUSED}) if is_refused else frozenset(),
        )


class _Member:
    """One client; `manner`: what it does with the next request of a broker."""

    def __init__(self, instance: ClientInstance) -> None:
        self.instance = instance
        self.manner = AT_ONCE[0]
        self.offsets: dict[int, int] = {}
        self.place: dict[str, object] = {}
        for code in (
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
        ):
            instance.listen(code, self._answer)

    async def join(self, group: str, topic: str) -> None:
        """Tell the brokers of a topic that it is a member. Raises Unsure where no name server
        names them."""
        try:
            await self.instance.routes.route(topic, timeout_ms=ROUTE_MS)
        except ClientError as error:
            raise Unsure from error
        self.instance.set_consumer_groups(
            [
                ConsumerGroup(
                    name=group,
                    push=True,
                    message_model=MessageModel.CLUSTERING,
                    consume_from=ConsumeFrom.FIRST,
                    subscriptions=(Subscription(topic=topic, expression="*", version=1),),
                )
            ]
        )

    @property
    def is_heard(self) -> bool:
        return self.manner in {"answers", "has none"}

    def shown(self) -> str:
        return _shown(self.offsets if self.manner == "answers" else {})

    def body(self) -> bytes:
        """Return what it answers with: a table by queue as Java's clients write one, or none. One
        that refuses has a table as well, which does not count."""
        if self.manner == "garbles":
            return b'{"messageQueueTable":{{'
        offsets = {} if self.manner == "has none" else self.offsets
        rows = [
            json.dumps({**self.place, "queueId": queue}) + f":{offset}"
            for queue, offset in offsets.items()
        ]
        return ('{"messageQueueTable":{' + ",".join(rows) + "}}").encode()

    def _answer(self, connection: Connection, command: RemotingCommand) -> None:
        if self.manner == SILENT:
            return
        if self.manner == "refuses":
            connection.send(command.response(_REFUSED, "not now", body=self.body()))
            return
        connection.send(command.response(0, body=self.body()))


def _shown(offsets: dict[int, int]) -> str:
    return " ".join(f"{queue}@{offsets[queue]}" for queue in sorted(offsets))
