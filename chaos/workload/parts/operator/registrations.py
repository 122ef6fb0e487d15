"""Broker registrations in the part `operator`: two broker groups of its own, in two clusters, whose
members come and go at one name server over several connections, and what it shows of them.

Place in the data path: REGISTER_BROKER, UNREGISTER_BROKER, BROKER_HEARTBEAT, QUERY_DATA_VERSION,
the right to write and topics by hand at one name server; behind each GET_ROUTEINFO_BY_TOPIC,
GET_BROKER_MEMBER_GROUP, GET_BROKER_CLUSTER_INFO or GET_TOPICS_BY_CLUSTER, held against
`registration_model`. Both groups have topics of the same names, so that what is done to one group
or cluster has to leave the other as it is.

Invariants: the groups are in clusters of their own, so that no client of another sees them, and
every turn has other names; nothing listens at their members' addresses; where a request had no
answer, the turn ends; answers are judged where no fault touches the whole turn.

Source: RocketMQ RouteInfoManager, BrokerOuterAPI; the run format (ask; M12).
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chaos.cluster.layout import NameServerPlace
from chaos.workload.context import Slot, WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.offset_reader import make_tool
from chaos.workload.parts.operator.registered_group import (
    TOPICS,
    RegisteredGroup,
    addresses_of,
    text_of,
)
from chaos.workload.parts.operator.registration_model import Version, route_of_groups
from chaos.workload.parts.operator.requests import json_of
from chaos.workload.parts.operator.topics import route_text
from client.connection.answers import error_of_remoting
from client.consume.pull_consumer import PullConsumer
from client.errors import MalformedAnswerError
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.route import register_body_crc

__all__ = ["CLUSTER", "RegistrationKeeper"]

TIMEOUT_MS: Final = 2_000
EVERY: Final = 4  # of its steps in which the group is at work
MEMBERS: Final = 3  # that a group may have
CLOSED_S: Final = 0.3  # within which a name server hears that a connection was closed
SILENT_MS: Final = 1_500  # after which a member that says nothing is gone
SCAN_S: Final = 7.0  # within which name servers look for them
CLUSTER: Final = "operator-registrations"
_NUMBERS: Final = (0, 0, 0, 1, 1, 2)
_NOT_FOUND: Final = 17


class _TurnEndedError(Exception):
    """A request had no answer, or another one than it must have: nobody knows what is so now."""


class RegistrationKeeper:
    """One group after the other at one name server."""

    def __init__(
        self,
        context: WorkContext,
        slot: Slot,
        expectations: Expectations,
        *,
        place: NameServerPlace,
        others: Sequence[NameServerPlace],
        rng: random.Random,
    ) -> None:
        """`others`: name servers at which nobody registers."""
        self._context = context
        self._slot = slot
        self._expectations = expectations
        self._place = place
        self._others = others
        self._rng = rng
        self._steps = rng.randrange(EVERY)
        self._turn = 0

    async def step(self) -> None:
        """Have a group come and go, every few steps."""
        self._steps += 1
        if self._steps % EVERY == 0:
            await self._be_group(with_silence=False)

    async def be_silent(self) -> None:
        """Have a group one of whose members says nothing more, and one goes on."""
        await self._be_group(with_silence=True)

    async def _be_group(self, *, with_silence: bool) -> None:
        self._turn += 1
        turn = _Turn(
            self._context,
            self._slot,
            self._expectations,
            place=self._place,
            name=f"{CLUSTER}-{self._place.name}-{self._turn}",
            rng=self._rng,
        )
        try:
            await turn.open()
            if with_silence:
                await turn.be_silent()
            else:
                await turn.act(self._others)
            await turn.leave()
        except _TurnEndedError:
            return  # its members go with their connections
        finally:
            await turn.end()


class _Turn:
    """The two groups, from their first registrations to their end."""

    def __init__(
        self,
        context: WorkContext,
        slot: Slot,
        expectations: Expectations,
        *,
        place: NameServerPlace,
        name: str,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._slot = slot
        self._expectations = expectations
        self._place = place
        self._name = name
        self._rng = rng
        self._topics = [f"{name}-{word}" for word in TOPICS]
        # Clients that greet all whom they find in a list of clusters are refused there at once:
        # nobody listens at so low a port.
        host = place.address.rpartition(":")[0]
        self._groups = [
            RegisteredGroup(
                f"{name}{which}",
                f"{CLUSTER}-{place.name}{which}",
                topics=self._topics,
                addresses=[f"{host}:{first + number}" for number in range(MEMBERS)],
                rng=rng,
            )
            for which, first in (("", 1), ("-twin", 1 + MEMBERS))
        ]
        self._group = self._groups[0]  # that a step is about
        self._topic = self._topics[0]
        self._tools: dict[int, PullConsumer] = {}  # by the connection's number
        self._next_connection = 0
        self._began_ns = time.monotonic_ns()

    async def open(self) -> None:
        """Open two connections."""
        for _ in range(2):
            await self._connect()

    async def _connect(self) -> None:
        tool = make_tool(self._context, self._slot)
        await tool.start()
        self._tools[self._next_connection] = tool
        self._next_connection += 1

    async def end(self) -> None:
        """Close all connections."""
        for tool in self._tools.values():
            await tool.crash()

    # What members do -----------------------------------------------------------------------------

    async def act(self, others: Sequence[NameServerPlace]) -> None:
        """Do one thing after the other, and query behind each. Raises _TurnEndedError."""
        for group in self._groups:
            self._group = group
            await self._register()
        steps = [
            self._register,
            self._renew,
            self._close_one,
            self._unregister,
            self._leave_late,
            self._leave_late,
            self._heartbeat,
            self._query_version,
            self._query_version,
            self._set_write,
            self._add_topic,
            self._delete_topic,
            self._renew,
            self._close_one,
            self._add_topic,
        ]
        for step in self._rng.sample(steps, len(steps)):
            self._group = self._rng.choice(self._groups)
            self._topic = self._rng.choice(self._topics)
            await step()
            await self._query()
        for other in others:
            topic = self._rng.choice(self._topics)
            await self._query_route(topic, expected=str(_NOT_FOUND), place=other)

    async def be_silent(self) -> None:
        """Have two members register who are to be heard every second or so; one of them is not.
        Raises _TurnEndedError."""
        addresses = self._group.addresses
        timeout = {"heartbeatTimeoutMillis": str(SILENT_MS)}
        for number, address in enumerate(addresses[:2]):
            await self._register_as(address, number, connection=0, fields=timeout)
        await self._query()
        loud = self._rng.randrange(2)
        end_s = asyncio.get_running_loop().time() + SCAN_S
        while asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(SILENT_MS / 3_000)
            await self._heartbeat_of(addresses[loud])
        self._group.model.unregister(addresses[1 - loud], 0)
        await self._query()

    async def leave(self) -> None:
        """Have all members unregister, and query for the last time. Raises _TurnEndedError."""
        for group in self._groups:
            self._group, model = group, group.model
            for address in model.members:
                await self._unregister_over(address, model.connection_of(address))
            await self._query()

    async def _register(self) -> None:
        rng, group = self._rng, self._group
        if rng.random() < 0.4:
            group.term += 1
        group.change_topics()
        await self._register_as(
            rng.choice(group.addresses), rng.choice(_NUMBERS), connection=self._some_connection()
        )

    async def _renew(self) -> None:
        """Register a member as it is, over whatever connection."""
        group = self._group
        members = group.model.members
        if not members:
            await self._register()
            return
        address = self._rng.choice(members)
        number = group.number_of(address)
        if self._rng.random() < 0.3:
            group.change_topics()
        await self._register_as(address, number, connection=self._some_connection())

    async def _register_as(
        self, address: str, number: int, *, connection: int, fields: Mapping[str, str] | None = None
    ) -> None:
        group = self._group
        # Now and then it is somebody who has slept through a change.
        term = group.term - (self._rng.random() < 0.15)
        version = Version(term=term, counter=group.counter)
        compressed = self._rng.random() < 0.5
        body = group.register_body(version, compressed=compressed)
        ext_fields = group.identity(address, number) | {
            "haServerAddr": f"{address}0",
            "compressed": str(compressed).lower(),
            "bodyCrc32": str(register_body_crc(body)),
            **(fields or {}),
        }
        answer = await self._request(connection, RequestCode.REGISTER_BROKER, ext_fields, body)
        expected = group.model.register(address, number, version, group.topics, connection)
        shown = f"0 {answer.ext_fields.get('masterAddr', '-')}" if answer.code == 0 else None
        self._hold(
            f"{address} registers as {number}, term {term}, connection {connection}",
            expected,
            shown or str(answer.code),
        )

    async def _unregister(self) -> None:
        """Have a member leave over its connection, or somebody who looks like it over another."""
        await self._unregister_over(
            self._rng.choice(self._group.addresses), self._some_connection()
        )

    async def _unregister_over(self, address: str, connection: int) -> None:
        fields = self._group.identity(address, 0)
        answer = await self._request(connection, RequestCode.UNREGISTER_BROKER, fields)
        self._group.model.unregister(address, connection)
        self._hold(f"{address} leaves over connection {connection}", "0", str(answer.code))

    async def _leave_late(self) -> None:
        """Have a member register over another connection than before, as a process that was
        started again does, and leave over the one before, as the old process does at its end."""
        model = self._group.model
        if not model.members:
            await self._register()
            return
        address = self._rng.choice(model.members)
        number, former = self._group.number_of(address), model.connection_of(address)
        await self._connect()
        await self._register_as(address, number, connection=max(self._tools))
        await self._unregister_over(address, former)

    async def _close_one(self) -> None:
        """Close a connection, mostly one that members have left; another takes its place."""
        connection = self._some_connection()
        await self._tools.pop(connection).crash()
        for group in self._groups:
            group.model.close(connection)
        await self._connect()
        await asyncio.sleep(CLOSED_S)

    async def _heartbeat(self) -> None:
        await self._heartbeat_of(self._rng.choice(self._group.addresses))

    async def _heartbeat_of(self, address: str) -> None:
        fields = self._group.identity(address, 0)
        answer = await self._request(self._some_connection(), RequestCode.BROKER_HEARTBEAT, fields)
        expected = self._group.model.heartbeat(address)
        self._hold(f"heartbeat of {address}", expected, str(answer.code))

    async def _query_version(self) -> None:
        group, members = self._group, self._group.model.members
        address = self._rng.choice((*members, *members, *group.addresses))
        version = Version(term=group.term, counter=group.counter)
        if address in members and self._rng.random() < 0.5:
            version = group.model.version_of(address)
            # As whoever has come to lead since asks, before it changed anything.
            version = dataclasses.replace(version, term=version.term + self._rng.choice((0, 0, 1)))
        answer = await self._request(
            self._some_connection(),
            RequestCode.QUERY_DATA_VERSION,
            group.identity(address, 0),
            json.dumps(
                {"stateVersion": version.term, "timestamp": 0, "counter": version.counter}
            ).encode(),
        )
        known = _json(answer) if answer.body else None
        shown = "-" if known is None else f"{known.get('stateVersion')}.{known.get('counter')}"
        self._hold(
            f"version of {address}, asked with {version.term}.{version.counter}",
            group.model.query_version(address, version),
            f"{answer.ext_fields.get('changed')} {shown}",
        )

    async def _set_write(self) -> None:
        """Take the right to write, and give it, in either order."""
        for writable in self._rng.sample((False, True), 2):
            code, count = RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipeTopicCount"
            if writable:
                code, count = RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount"
            answer = await self._request(
                self._some_connection(), code, {"brokerName": self._group.name}
            )
            self._hold(
                f"right to write of {self._group.name}, given: {writable}",
                self._group.model.set_write(writable=writable),
                str(answer.ext_fields.get(count)),
            )
            await self._query()

    async def _delete_topic(self) -> None:
        """Delete a topic: everywhere, or in one cluster."""
        group, topic = self._group, self._topic
        cluster = self._rng.choice((None, group.cluster, group.cluster, f"{group.cluster}-none"))
        fields = {"topic": topic} if cluster is None else {"topic": topic, "clusterName": cluster}
        code = RequestCode.DELETE_TOPIC_IN_NAMESRV
        answer = await self._request(self._some_connection(), code, fields)
        for each in self._groups:
            if cluster in {None, each.cluster}:
                each.model.delete_topic(topic)
        self._hold(f"deletion of {topic} in {cluster or 'all clusters'}", "0", str(answer.code))

    async def _add_topic(self) -> None:
        """Register a topic by hand at a group; others that have it go on having it."""
        group, topic = self._group, self._topic
        queues = group.draw_queues()
        shown = {
            "brokerName": group.name,
            "readQueueNums": queues.read,
            "writeQueueNums": queues.write,
            "perm": queues.perm,
            "topicSysFlag": queues.flag,
        }
        answer = await self._request(
            self._some_connection(),
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            {"topic": topic},
            json.dumps({"queueDatas": [shown]}).encode(),
        )
        self._hold(f"queues of {topic}", group.model.add_topic(topic, queues), str(answer.code))

    # What is shown -------------------------------------------------------------------------------

    async def _query(self) -> None:
        """Query the topic that a step was about, and the members or lists."""
        topic = self._topic
        expected = route_of_groups([group.model for group in self._groups], topic)
        await self._query_route(topic, expected=expected, place=self._place)
        query = self._rng.choice((self._query_members, self._query_info, self._query_topics))
        await query()

    async def _query_route(self, topic: str, *, expected: str, place: NameServerPlace) -> None:
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        answer = await self._request(self._some_connection(), code, {"topic": topic}, place=place)
        shown = str(answer.code)
        if answer.code == 0:
            route = _json(answer)
            brokers = route.get("brokerDatas")
            rows = [
                (route_text(route, group.name), addresses_of(brokers, group.name))
                for group in self._groups
            ]
            shown = "; ".join("-" if text is None else f"{text}, {who}" for text, who in rows)
        self._hold(f"route of {topic} at {place.name}", expected, shown)

    async def _query_members(self) -> None:
        group = self._rng.choice(self._groups)
        fields = {"clusterName": group.cluster, "brokerName": group.name}
        code = RequestCode.GET_BROKER_MEMBER_GROUP
        body = await self._body(code, fields)
        shown = text_of(body.get("brokerMemberGroup", {}).get("brokerAddrs"))
        self._hold(f"members of {group.name}", group.model.members_text(), shown)

    async def _query_info(self) -> None:
        body = await self._body(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        for group in self._groups:
            shown = body.get("brokerAddrTable", {}).get(group.name, {}).get("brokerAddrs")
            names = body.get("clusterAddrTable", {}).get(group.cluster, [])
            self._hold(
                f"cluster of {group.name}",
                f"{group.model.members_text()}, listed {bool(group.model.members)}",
                f"{text_of(shown)}, listed {group.name in names}",
            )

    async def _query_topics(self) -> None:
        """Query all topics, or those of one cluster."""
        group = self._rng.choice((None, *self._groups))
        code, fields = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}
        if group is not None:
            code, fields = RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": group.cluster}
        body = await self._body(code, fields)
        known = {
            topic
            for each in (self._groups if group is None else [group])
            for topic in each.model.topics
        }
        shown = sorted({*self._topics} & set(body.get("topicList") or ()))
        self._hold(
            f"topics of {self._name if group is None else group.name}, {code.name.lower()}",
            " ".join(sorted(known)) or "-",
            " ".join(shown) or "-",
        )

    async def _body(self, code: RequestCode, fields: Mapping[str, str]) -> Mapping[str, Any]:
        return _json(await self._request(self._some_connection(), code, fields))

    # Requests ------------------------------------------------------------------------------------

    async def _request(
        self,
        connection: int,
        code: RequestCode,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        place: NameServerPlace | None = None,
    ) -> RemotingCommand:
        """Return the answer, whatever its code. Raises _TurnEndedError where there is none."""
        address = (place or self._place).address
        command = RemotingCommand(code=code, ext_fields=dict(fields), body=body)
        try:
            rpc = self._tools[connection].instance.rpc
            return await rpc.request(address, command, TIMEOUT_MS)
        except RemotingError as error:
            raise _TurnEndedError from error_of_remoting(error, address)

    def _hold(self, what: str, expected: str, answered: str) -> None:
        """Record an answer. Raises _TurnEndedError where it is another."""
        self._expectations.hold(
            what,
            expected=expected,
            answered=answered,
            topic=self._name,
            calm_since=self._began_ns,
        )
        if answered != expected:
            raise _TurnEndedError

    def _some_connection(self) -> int:
        return self._rng.choice(sorted(self._tools))


def _json(answer: RemotingCommand) -> Mapping[str, Any]:
    """Return the body of an answer; one that can't be read shows nothing."""
    try:
        return json_of(answer, "a name server")
    except MalformedAnswerError:
        return {}
