"""Broker registrations in the part `operator`: a broker group of its own, whose members come and go
at one name server over several connections, and what that name server shows of them.

Place in the data path: REGISTER_BROKER, UNREGISTER_BROKER, BROKER_HEARTBEAT, QUERY_DATA_VERSION,
the right to write and topics by hand at one name server; behind each GET_ROUTEINFO_BY_TOPIC,
GET_BROKER_MEMBER_GROUP, GET_BROKER_CLUSTER_INFO or GET_TOPICS_BY_CLUSTER, held against
`registration_model`.

Invariants: the group is in a cluster of its own, so that no client of another sees it, and every
turn has another name; nothing listens at its members' addresses; where a request had no answer, the
turn ends; answers are judged where no fault touches the whole turn.

Source: RocketMQ RouteInfoManager, BrokerOuterAPI; the run format (ask; M12).
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from chaos.cluster.layout import NameServerPlace
from chaos.workload.context import Slot, WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.offset_reader import make_tool
from chaos.workload.parts.operator_requests import json_of
from chaos.workload.parts.operator_topics import route_text
from chaos.workload.parts.registration_model import GroupModel, Queues, Version
from client.connection.answers import error_of_remoting
from client.consume.pull_consumer import PullConsumer
from client.errors import MalformedAnswerError
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    encode_register_body,
    register_body_crc,
)

__all__ = ["CLUSTER", "RegistrationKeeper"]

TIMEOUT_MS: Final = 2_000
EVERY: Final = 4  # of its steps in which the group is at work
ACTIONS: Final = 9
CLOSED_S: Final = 0.3  # within which a name server hears that a connection was closed
SILENT_MS: Final = 1_500  # after which a member that says nothing is gone
SCAN_S: Final = 7.0  # within which name servers look for them
CLUSTER: Final = "operator-registrations"
_TOPICS: Final = ("one", "two", "three")
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
    """One group, from its first registration to its end."""

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
        self._cluster = f"{CLUSTER}-{place.name}"
        self._rng = rng
        self._model = GroupModel()
        self._tools: dict[int, PullConsumer] = {}  # by the connection's number
        self._next_connection = 0
        self._term = 3
        self._counter = 0
        self._topics: dict[str, Queues] = {}
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
        """Do one thing after the other, and ask behind each. Raises _TurnEndedError."""
        await self._register()
        steps = [
            self._register,
            self._renew,
            self._close_one,
            self._unregister,
            self._heartbeat,
            self._query_version,
            self._set_write,
            self._change_topic,
        ]
        for _ in range(ACTIONS):
            await self._rng.choice([*steps, self._renew, self._close_one])()
            await self._ask()
        for other in others:
            topic = self._topic(self._rng.choice(_TOPICS))
            await self._ask_route(topic, expected=str(_NOT_FOUND), place=other)

    async def be_silent(self) -> None:
        """Have two members register who are to be heard every second or so; one of them is not.
        Raises _TurnEndedError."""
        addresses = self._addresses()
        timeout = {"heartbeatTimeoutMillis": str(SILENT_MS)}
        for number, address in enumerate(addresses[:2]):
            await self._register_as(address, number, connection=0, fields=timeout)
        await self._ask()
        loud = self._rng.randrange(2)
        end_s = asyncio.get_running_loop().time() + SCAN_S
        while asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(SILENT_MS / 3_000)
            await self._heartbeat_of(addresses[loud])
        self._model.unregister(addresses[1 - loud], 0)
        await self._ask()

    async def leave(self) -> None:
        """Have all members unregister, and ask for the last time. Raises _TurnEndedError."""
        for address in self._model.members:
            await self._unregister_over(address, self._model.connection_of(address))
        await self._ask()

    async def _register(self) -> None:
        rng = self._rng
        if rng.random() < 0.4:
            self._term += 1
        self._change_topics()
        await self._register_as(
            rng.choice(self._addresses()), rng.choice(_NUMBERS), connection=self._some_connection()
        )

    async def _renew(self) -> None:
        """Register a member as it is, over whatever connection."""
        members = self._model.members
        if not members:
            await self._register()
            return
        address = self._rng.choice(members)
        number = int(dict(row.split("=")[::-1] for row in self._rows())[address])
        if self._rng.random() < 0.3:
            self._change_topics()
        await self._register_as(address, number, connection=self._some_connection())

    def _rows(self) -> list[str]:
        return self._model.members_text().split()

    def _change_topics(self) -> None:
        self._counter += 1
        rng = self._rng
        for topic in rng.sample(_TOPICS, rng.randint(1, len(_TOPICS))):
            self._topics[self._topic(topic)] = self._draw_queues()

    def _draw_queues(self) -> Queues:
        rng = self._rng
        return Queues(
            read=rng.randint(1, 9), write=rng.randint(1, 9), perm=rng.choice((2, 4, 6)), flag=0
        )

    async def _register_as(
        self, address: str, number: int, *, connection: int, fields: Mapping[str, str] | None = None
    ) -> None:
        # Now and then it is somebody who has slept through a change.
        term = self._term - (self._rng.random() < 0.15)
        version = Version(term=term, counter=self._counter)
        compressed = self._rng.random() < 0.5
        body = encode_register_body(
            RegisterBrokerBody(
                data_version=_data_version(version),
                topics=[_topic_config(topic, queues) for topic, queues in self._topics.items()],
            ),
            compressed=compressed,
        )
        asked = self._identity(address, number) | {
            "haServerAddr": f"{address}0",
            "compressed": str(compressed).lower(),
            "bodyCrc32": str(register_body_crc(body)),
            **(fields or {}),
        }
        answer = await self._request(connection, RequestCode.REGISTER_BROKER, asked, body)
        expected = self._model.register(address, number, version, self._topics, connection)
        shown = f"0 {answer.ext_fields.get('masterAddr', '-')}" if answer.code == 0 else None
        self._hold(
            f"{address} registers as {number}, term {term}, connection {connection}",
            expected,
            shown or str(answer.code),
        )

    async def _unregister(self) -> None:
        """Have a member leave over its connection, or somebody who looks like it over another."""
        await self._unregister_over(self._rng.choice(self._addresses()), self._some_connection())

    async def _unregister_over(self, address: str, connection: int) -> None:
        fields = self._identity(address, 0)
        answer = await self._request(connection, RequestCode.UNREGISTER_BROKER, fields)
        self._model.unregister(address, connection)
        self._hold(f"{address} leaves over connection {connection}", "0", str(answer.code))

    async def _close_one(self) -> None:
        """Close a connection, mostly one that members have left; another takes its place."""
        connection = self._some_connection()
        await self._tools.pop(connection).crash()
        self._model.close(connection)
        await self._connect()
        await asyncio.sleep(CLOSED_S)

    async def _heartbeat(self) -> None:
        await self._heartbeat_of(self._rng.choice(self._addresses()))

    async def _heartbeat_of(self, address: str) -> None:
        fields = self._identity(address, 0)
        answer = await self._request(self._some_connection(), RequestCode.BROKER_HEARTBEAT, fields)
        self._hold(f"heartbeat of {address}", self._model.heartbeat(address), str(answer.code))

    async def _query_version(self) -> None:
        address = self._rng.choice(self._addresses())
        version = Version(term=self._term, counter=self._counter)
        if address in self._model.members and self._rng.random() < 0.5:
            version = self._model.version_of(address)
        answer = await self._request(
            self._some_connection(),
            RequestCode.QUERY_DATA_VERSION,
            self._identity(address, 0),
            json.dumps(
                {"stateVersion": version.term, "timestamp": 0, "counter": version.counter}
            ).encode(),
        )
        known = _json(answer) if answer.body else None
        shown = "-" if known is None else f"{known.get('stateVersion')}.{known.get('counter')}"
        self._hold(
            f"version of {address}, asked with {version.term}.{version.counter}",
            self._model.query_version(address, version),
            f"{answer.ext_fields.get('changed')} {shown}",
        )

    async def _set_write(self) -> None:
        writable = self._rng.random() < 0.5
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        count = "wipeTopicCount"
        if writable:
            code, count = RequestCode.ADD_WRITE_PERM_OF_BROKER, "addTopicCount"
        answer = await self._request(self._some_connection(), code, {"brokerName": self._name})
        self._hold(
            f"right to write of {self._name}, given: {writable}",
            self._model.set_write(writable=writable),
            str(answer.ext_fields.get(count)),
        )

    async def _change_topic(self) -> None:
        """Register one topic by hand, or delete one."""
        topic = self._topic(self._rng.choice(_TOPICS))
        if self._rng.random() < 0.5:
            fields = {"topic": topic}
            if self._rng.random() < 0.5:
                fields["clusterName"] = self._cluster
            code = RequestCode.DELETE_TOPIC_IN_NAMESRV
            answer = await self._request(self._some_connection(), code, fields)
            self._model.delete_topic(topic)
            self._hold(f"deletion of {topic}", "0", str(answer.code))
            return
        queues = self._draw_queues()
        shown = {
            "brokerName": self._name,
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
        self._hold(f"queues of {topic}", self._model.add_topic(topic, queues), str(answer.code))

    # What is shown -------------------------------------------------------------------------------

    async def _ask(self) -> None:
        """Ask for the members, and for a topic or the lists in which the group stands."""
        topic = self._topic(self._rng.choice(_TOPICS))
        await self._ask_route(topic, expected=self._model.route_text(topic), place=self._place)
        ask = self._rng.choice((self._ask_members, self._ask_info, self._ask_topics))
        await ask()

    async def _ask_route(self, topic: str, *, expected: str, place: NameServerPlace) -> None:
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        answer = await self._request(self._some_connection(), code, {"topic": topic}, place=place)
        shown = str(answer.code)
        if answer.code == 0:
            route = _json(answer)
            members = _addresses_of(route.get("brokerDatas"), self._name)
            shown = f"{route_text(route, self._name)}, {members}"
        self._hold(f"route of {topic} at {place.name}", expected, shown)

    async def _ask_members(self) -> None:
        fields = {"clusterName": self._cluster, "brokerName": self._name}
        code = RequestCode.GET_BROKER_MEMBER_GROUP
        body = await self._body(code, fields)
        shown = _text_of(body.get("brokerMemberGroup", {}).get("brokerAddrs"))
        self._hold(f"members of {self._name}", self._model.members_text(), shown)

    async def _ask_info(self) -> None:
        body = await self._body(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        shown = body.get("brokerAddrTable", {}).get(self._name, {}).get("brokerAddrs")
        names = body.get("clusterAddrTable", {}).get(self._cluster, [])
        self._hold(
            f"cluster of {self._name}",
            f"{self._model.members_text()}, listed {bool(self._model.members)}",
            f"{_text_of(shown)}, listed {self._name in names}",
        )

    async def _ask_topics(self) -> None:
        by_cluster = self._rng.random() < 0.5
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        fields = {}
        if by_cluster:
            code, fields = RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": self._cluster}
        body = await self._body(code, fields)
        own = {self._topic(topic) for topic in _TOPICS}
        shown = sorted(own & set(body.get("topicList") or ()))
        self._hold(
            f"topics of {self._name}, {code.name.lower()}",
            " ".join(self._model.topics) or "-",
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

    def _identity(self, address: str, number: int) -> dict[str, str]:
        return {
            "brokerName": self._name,
            "brokerAddr": address,
            "clusterName": self._cluster,
            "brokerId": str(number),
        }

    def _some_connection(self) -> int:
        return self._rng.choice(sorted(self._tools))

    def _addresses(self) -> list[str]:
        """Return the members that there may be. Clients that greet all whom they find in a list of
        clusters are refused there at once: nobody listens at so low a port."""
        host = self._place.address.rpartition(":")[0]
        return [f"{host}:{number}" for number in range(1, 4)]

    def _topic(self, word: str) -> str:
        return f"{self._name}-{word}"


def _json(answer: RemotingCommand) -> Mapping[str, Any]:
    """Return the body of an answer; one that can't be read shows nothing."""
    try:
        return json_of(answer, "a name server")
    except MalformedAnswerError:
        return {}


def _data_version(version: Version) -> DataVersion:
    return DataVersion(state_version=version.term, counter=version.counter)


def _topic_config(topic: str, queues: Queues) -> TopicConfig:
    return TopicConfig(
        topic_name=topic,
        read_queue_nums=queues.read,
        write_queue_nums=queues.write,
        perm=queues.perm,
        topic_sys_flag=queues.flag,
    )


def _addresses_of(brokers: Sequence[Mapping[str, Any]] | None, name: str) -> str:
    """Return the members of a group in a route."""
    for each in brokers or ():
        if each.get("brokerName") == name:
            return _text_of(each.get("brokerAddrs"))
    return "-"


def _text_of(addresses: Mapping[str, str] | None) -> str:
    rows = sorted((int(number), address) for number, address in (addresses or {}).items())
    return " ".join(f"{number}={address}" for number, address in rows) or "-"
