"""Who made a topic is answered when the name servers know it, or a second later."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from broker.entry.topic_attributes import TOPIC_ATTRIBUTES
from broker.entry.topics import GROUP_NAME_SIZE_MAX
from broker.process.registration import Registration
from broker.state.state import StateLimits
from campaigns.rig.waiting import turns
from remoting.connections.rpc import RemotingClient
from remoting.errors import ConnectError
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import FRAME_SIZE_MAX
from remoting.protocol.route import (
    QUEUES_MAX,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    decode_register_body,
    encode_register_body,
)

ONE, TWO = "127.0.0.1:1", "127.0.0.1:2"
INTERVAL_MS = 60_000


class NameServers:
    """Answers registrations when the test says so."""

    def __init__(self) -> None:
        self.gates = {ONE: asyncio.Event(), TWO: asyncio.Event()}
        self.down: set[str] = set()
        self.asked: list[str] = []
        self.commands: list[RemotingCommand] = []

    async def request(self, address: str, command: RemotingCommand, _: int) -> RemotingCommand:
        self.asked.append(address)
        self.commands.append(command)
        if address in self.down:
            raise ConnectError(f"{address} is down")
        await self.gates[address].wait()
        return RemotingCommand(code=0)


class Known(Registration):
    """What it says of the broker is not what is tested."""

    def _identity(self) -> dict[str, str]:
        return {}

    def _body(self) -> Any:
        return RegisterBrokerBody(data_version=DataVersion(state_version=1), topics=[])


@pytest.fixture
async def rig():
    servers = NameServers()
    config = SimpleNamespace(
        is_master_slave=False,
        name_servers=(ONE, TWO),
        registration_interval_ms=INTERVAL_MS,
        advertised="127.0.0.1:3",
    )
    replica, leadership = cast("Any", SimpleNamespace(config=config)), cast("Any", None)
    registration = Known(replica, leadership, cast("RemotingClient", servers))
    tasks = [asyncio.ensure_future(registration.run(address)) for address in (ONE, TWO)]
    await turns(1)
    yield registration, servers
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_answer_waits_for_a_registration_that_began_after_it(rig):
    registration, servers = rig
    answered: list[bool] = []
    await turns(20)
    registration.when_registered(lambda: answered.append(True))
    servers.gates[ONE].set()
    await turns(20)
    assert not answered, "only one name server knows"
    assert servers.asked.count(ONE) == 2, "the first registration may lack the topic"
    servers.gates[TWO].set()
    await turns(20)
    assert answered == [True]
    assert servers.asked.count(TWO) == 2


async def test_three_registrations_may_be_lost(rig):
    """RocketMQ's brokers register every 30 s, and name servers wait for 120."""
    _, servers = rig
    await turns(20)
    waited_ms = {int(each.ext_fields["heartbeatTimeoutMillis"]) for each in servers.commands}
    assert waited_ms == {4 * INTERVAL_MS}


async def test_a_name_server_that_is_down_or_silent_holds_up_nobody_for_long(rig):
    registration, servers = rig
    servers.down.add(ONE)
    answered = asyncio.Event()
    registration.when_registered(answered.set)  # TWO says nothing
    async with asyncio.timeout(5):
        await answered.wait()


@pytest.mark.parametrize(
    ("voters", "learners"),
    [("abc", ""), ("abc", "d"), ("bcd", "a"), ("acd", "b"), ("a", "bc"), ("bc", "ad")],
)
def test_no_two_replicas_of_a_group_register_under_one_id(voters, learners):
    """A name server retains one address for an id: the other replica could not be found."""
    status = SimpleNamespace(voters=tuple(voters), learners=tuple(learners), term=1)
    ids = {}
    for node in (*voters, *learners):
        config = SimpleNamespace(
            is_master_slave=False,
            name_servers=(),
            node=node,
            group="g",
            cluster="c",
            advertised=f"{node}:1",
        )
        replica = cast("Any", SimpleNamespace(config=config, log=Mock(status=lambda: status)))
        leadership = cast("Any", SimpleNamespace(ready=node == voters[0]))
        identity = Registration(replica, leadership, cast("Any", None))._identity()
        ids[identity["brokerId"]] = identity["brokerAddr"]
    assert len(ids) == len(voters) + len(learners)
    assert ids["0"] == f"{voters[0]}:1", "the leader is the master"


@pytest.mark.parametrize("compressed", [False, True])
def test_as_many_topics_as_a_broker_may_have_fit_a_registration(compressed):
    """A broker that can't register has none."""
    attributes = {
        "dedupe": "false",
        "message.type": "UNSPECIFIED",
        "reserve.time": str((1 << 63) - 1),
        "queue.type": "SimpleCQ",
        "cleanup.policy": "DELETE",
    }
    assert attributes.keys() == TOPIC_ATTRIBUTES.keys()
    topics = [
        TopicConfig(
            topic_name=f"%RETRY%{number:0{GROUP_NAME_SIZE_MAX}d}",
            read_queue_nums=QUEUES_MAX,
            write_queue_nums=QUEUES_MAX,
            topic_sys_flag=7,
            attributes=attributes,
        )
        for number in range(StateLimits().topics_max)
    ]
    registration = RegisterBrokerBody(data_version=DataVersion(state_version=1), topics=topics)
    body = encode_register_body(registration, compressed=compressed)
    assert len(body) < FRAME_SIZE_MAX
    decoded = decode_register_body(body, compressed=compressed)
    assert [topic.topic_name for topic in decoded.topics] == [topic.topic_name for topic in topics]
