"""Requests of clients with an old route: a follower asks its leader in their place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from broker.entry.record import host_bytes
from broker.process.processors import Processors
from broker.process.request_table import ROW_OF, SERVED, dispatch_of
from broker.request import forwarding
from broker.request.forwarding import Forwarded, Forwarding, born_host_of
from broker.request.request import Request
from broker.send.send import SendProcessor
from campaigns.rig.waiting import until
from raft.messages import NodeId
from raft.replicated_log import LogStatus
from remoting.connections.connection import Connection
from remoting.connections.rpc import RemotingClient
from remoting.connections.server import RemotingServer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import LANGUAGE_PYTHON, RemotingCommand
from tests.broker.rig import FakeConnection, MemoryLog, Rig, send_fields

JAVA = 0
SEND = RequestCode.SEND_MESSAGE_V2


class FollowerLog(MemoryLog):
    """A follower's, which is told who leads."""

    leader_id: NodeId | None = None

    def status(self) -> LogStatus:
        return replace(super().status(), leader_id=self.leader_id)


class Follower:
    """A replica n0 that follows, and n1's port on which a test answers as the leader."""

    def __init__(self, directory: Path) -> None:
        self.rig = Rig(directory)
        self.log = FollowerLog()
        self.log.leader = False
        self.log.machine = self.rig.machine
        self.rig.context.log = self.log
        self.rig.context.ready = False
        self.rig.context.remoting = self.remoting = RemotingClient()
        self.asked: list[RemotingCommand] = []
        self.answers: list[Callable[[Connection, RemotingCommand], None]] = []
        self.server = RemotingServer("127.0.0.1", 0, self._on_request)
        self.forwarding = self.rig.make(Forwarding, self.rig.tasks, may_sign=True)
        self.handled: list[Request] = []
        self.client = FakeConnection("127.0.0.1:50007")

    def _on_request(self, connection: Connection, command: RemotingCommand) -> None:
        self.asked.append(command)
        answer = self.answers.pop(0) if self.answers else stored
        answer(connection, command)

    async def start(self) -> None:
        await self.server.start()
        self.rig.context.broker_addresses = {
            "n0": "127.0.0.1:1",
            "n1": f"127.0.0.1:{self.server.port}",
        }
        self.follow("n1")

    async def stop(self) -> None:
        await self.rig.tasks.stop()
        await self.remoting.close()
        await self.server.stop()

    def follow(self, leader: str | None) -> None:
        self.log.leader_id = None if leader is None else NodeId(leader)
        self.forwarding.role_changed(self.log.status())

    def request(
        self, code: int = SEND, language: int = JAVA, flag: int = 0, **fields: str
    ) -> Request:
        command = RemotingCommand(
            code=code, opaque=9, language=language, flag=flag, ext_fields=fields, body=b"body"
        )
        return Request(self.client, command)  # type: ignore[arg-type]

    def give(self, request: Request) -> None:
        assert takes_at(self.forwarding, request)
        self.forwarding.forward(request, self.handled.append)

    async def answer(self) -> RemotingCommand:
        await until(lambda: self.client.sent)
        return self.client.sent[-1]


def takes_at(forwarding: Forwarding, request: Request) -> bool:
    return forwarding.takes(request, ROW_OF[request.command.code].forwarded)


_VALUES = {"S": "x", "I": "0", "L": "1", "B": "false"}
_NAMES = {"topic": "T", "b": "T", "extraInfo": "0 1 1000 0 0 broker-a 0 0"}
# What concerns the client's own connection, what waits long, and what is ours.
_REFUSED = {
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.POP_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.LEDGERMQ_CHANGE_MEMBER,
    RequestCode.LEDGERMQ_TRANSFER,
}


async def test_what_only_a_leader_answers_is_handed_on(tmp_path: Path) -> None:
    """RocketMQ's tools ask any broker of a group."""
    rig = Rig(tmp_path)
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(key="K"), b"x")
    rig.log.depose()
    handlers = dispatch_of(rig.make(Processors, rig.tasks))
    refused = set()
    for row in SERVED:
        if row.code == RequestCode.LEDGERMQ_MEMBERS:
            continue  # of the log itself
        fields = {
            each.name: _NAMES.get(each.name, _VALUES[each.type])
            for each in row.header_fields()
            if each.required
        }
        answer = await rig.ask(handlers[row.code], row.code, fields)
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            refused.add(row.code)
    assert len(refused) > 30
    forwarded = {row.code for row in SERVED if row.forwarded is not Forwarded.NEVER}
    assert refused - forwarded == _REFUSED
    await rig.tasks.stop()


def stored(connection: Connection, command: RemotingCommand) -> None:
    connection.send(command.response(ResponseCode.SUCCESS, "kept", {"queueOffset": "4"}, b"x"))


def refuses(remark: str) -> Callable[[Connection, RemotingCommand], None]:
    return lambda connection, command: connection.send(
        command.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
    )


@pytest.fixture
async def follower(tmp_path: Path) -> AsyncIterator[Follower]:
    follower = Follower(tmp_path)
    await follower.start()
    yield follower
    await follower.stop()


async def test_the_leaders_answer_is_handed_back(follower: Follower) -> None:
    follower.give(follower.request(b="T"))
    answer = await follower.answer()
    assert (answer.code, answer.remark, answer.ext_fields, answer.body, answer.opaque) == (
        ResponseCode.SUCCESS,
        "kept",
        {"queueOffset": "4"},
        b"x",
        9,
    )
    (asked,) = follower.asked
    assert (asked.code, asked.body, asked.ext_fields["b"]) == (SEND, b"body", "T")


async def test_who_is_not_handed_on(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    takes = partial(takes_at, follower.forwarding)
    assert takes(follower.request())
    assert not takes(follower.request(language=LANGUAGE_PYTHON)), "it follows the hint"
    assert takes(follower.request(RequestCode.DELETE_TOPIC_IN_BROKER, LANGUAGE_PYTHON))
    assert not takes(follower.request(RequestCode.HEART_BEAT)), "it concerns the connection"
    assert not takes(follower.request(ledgermqForwarded="127.0.0.1:50007")), "once only"
    monkeypatch.setattr(forwarding, "_BYTES_MAX", 7)
    follower.follow(None)
    follower.give(follower.request())
    assert not takes(follower.request()), "eight bytes would wait"
    follower.follow("n1")
    await follower.answer()
    await until(lambda: takes(follower.request()))


async def test_tools_may_ask_any_replica_of_a_group_for_a_change(follower: Follower) -> None:
    for code in (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.AUTH_CREATE_USER,
    ):
        assert takes_at(follower.forwarding, follower.request(code))
        assert not takes_at(follower.forwarding, follower.request(code, LANGUAGE_PYTHON))


async def test_without_an_account_of_its_own_it_refuses(follower: Follower) -> None:
    unsigned = follower.rig.make(Forwarding, follower.rig.tasks, may_sign=False)
    assert not takes_at(unsigned, follower.request()), (
        "the leader would ask for the client's signature"
    )


async def test_a_leader_is_waited_for(follower: Follower) -> None:
    follower.follow(None)
    follower.give(follower.request())
    await asyncio.sleep(0.01)
    assert not follower.client.sent
    follower.follow("n1")
    assert (await follower.answer()).code == ResponseCode.SUCCESS


async def test_who_comes_to_lead_answers_itself(follower: Follower) -> None:
    follower.follow(None)
    request = follower.request()
    follower.give(request)
    await asyncio.sleep(0.01)
    follower.rig.context.ready = True
    follower.follow("n0")
    await until(lambda: follower.handled)
    assert follower.handled == [request]
    assert not follower.asked


async def test_without_a_leader_for_long_it_refuses_at_once(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_LEADERLESS_MS_MAX", 20)
    follower.follow(None)
    follower.give(follower.request())
    answer = await follower.answer()
    assert (answer.code, answer.remark) == (14, "not the leader; leader is unknown")
    assert not follower.asked


async def test_a_leader_that_can_not_be_reached_was_not_asked(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_TIMEOUT_MS", 60)
    await follower.server.stop()
    follower.give(follower.request())
    answer = await follower.answer()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark is not None
    assert answer.remark.startswith("not the leader; leader is 127.0.0.1:")


async def test_a_leader_whose_address_is_not_known_is_not_waited_for(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_TIMEOUT_MS", 3_600_000)
    follower.follow("n7")
    follower.give(follower.request())
    answer = await follower.answer()
    assert (answer.code, answer.remark) == (14, "not the leader; leader is unknown")


async def test_a_leaders_refusal_is_not_the_last_word(follower: Follower) -> None:
    follower.answers = [refuses("not the leader; leader is unknown")]
    follower.give(follower.request())
    assert (await follower.answer()).code == ResponseCode.SUCCESS
    assert len(follower.asked) == 2


async def test_other_refusals_are_handed_back(follower: Follower) -> None:
    follower.answers = [refuses("service not available now")]
    follower.give(follower.request())
    assert (await follower.answer()).remark == "service not available now"


async def test_what_was_handed_over_and_not_answered_is_unknown(follower: Follower) -> None:
    follower.answers = [lambda connection, _: connection.close()]
    follower.give(follower.request())
    answer = await follower.answer()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("outcome unknown")
    assert len(follower.asked) == 1, "a second copy may be a second message"


async def test_a_oneway_is_handed_on_and_not_answered(follower: Follower) -> None:
    follower.give(follower.request(RequestCode.END_TRANSACTION, flag=2))
    await until(lambda: follower.asked)
    assert not follower.client.sent


async def test_a_message_keeps_its_senders_address(follower: Follower) -> None:
    follower.give(follower.request())
    await follower.answer()
    at_leader = Request(FakeConnection("10.0.0.1:9"), follower.asked[0])  # type: ignore[arg-type]
    assert born_host_of(at_leader) == host_bytes("127.0.0.1:50007")
    nonsense = follower.request(ledgermqForwarded="true")
    assert born_host_of(nonsense) == host_bytes("127.0.0.1:50007")
