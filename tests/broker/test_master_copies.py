"""What a slave of a RocketMQ master copies, from bodies in the JSON that Java writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.config.config import BrokerConfig, ConfigError
from broker.process.master_copies import MasterCopies
from broker.state.state import BrokerState, StateLimits
from remoting.connections.rpc import RemotingClient
from remoting.errors import ConnectError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

BODIES = {
    RequestCode.GET_ALL_TOPIC_CONFIG: (
        b'{"dataVersion":{"counter":1},"topicConfigTable":{"T":{"attributes":{},"order":false,'
        b'"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T",'
        b'"topicSysFlag":0,"writeQueueNums":8}}}'
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (
        b'{"subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":3}}}'
    ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":{"T@G":{0:12,3:7}}}',
    RequestCode.GET_ALL_DELAY_OFFSET: b'{"offsetTable":{1:5,3:2}}',
}


class Master:
    """A master that answers with `bodies`; None: it is away."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] | None = {int(code): body for code, body in BODIES.items()}

    async def request(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert (address, timeout_ms) == ("127.0.0.1:1", 3_000)
        if self.bodies is None:
            raise ConnectError("it is away")
        body = self.bodies.get(command.code)
        code = ResponseCode.SUCCESS if body else ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return RemotingCommand(code=code, body=body or b"")


def rig() -> tuple[MasterCopies, Master, BrokerState, list[int]]:
    state, master, notices = BrokerState(StateLimits(), {}), Master(), list[int]()
    replica = SimpleNamespace(
        config=SimpleNamespace(brokers={"m": "127.0.0.1:1"}, master_node="m"),
        log=SimpleNamespace(retention_bounds=lambda: SimpleNamespace(end_position=100)),
        state=state,
    )
    copies = MasterCopies(
        cast("Any", replica), cast("RemotingClient", master), lambda: notices.append(1)
    )
    return copies, master, state, notices


async def test_all_tables_are_copied() -> None:
    copies, _, state, notices = rig()
    await copies._copy()
    topic = state.topics["T"]
    assert (topic.read_queue_count, topic.write_queue_count, topic.perm) == (4, 8, 6)
    assert state.groups["G"]["retryMaxTimes"] == 3
    assert state.consumer_offsets == {("G", "T", 0): 12, ("G", "T", 3): 7}
    assert state.delay_offsets == {0: 5, 2: 2}
    assert notices == [1]
    await copies._copy()
    assert notices == [1], "no topic is new"


async def test_what_the_master_says_later_counts_even_where_it_is_less() -> None:
    copies, master, state, _ = rig()
    await copies._copy()
    assert master.bodies is not None
    master.bodies[RequestCode.GET_ALL_CONSUMER_OFFSET] = b'{"offsetTable":{"T@G":{0:3}}}'
    await copies._copy()
    assert state.consumer_offsets[("G", "T", 0)] == 3


@pytest.mark.parametrize("code", BODIES)
@pytest.mark.parametrize("body", [b"", b"[]", b"{{", b'{"offsetTable":{"T@G":{"x":"y"}}}'])
async def test_a_table_that_is_none_leaves_the_others(code: RequestCode, body: bytes) -> None:
    copies, master, state, _ = rig()
    assert master.bodies is not None
    master.bodies[code] = body
    await copies._copy()
    is_there = {
        RequestCode.GET_ALL_TOPIC_CONFIG: "T" in state.topics,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "G" in state.groups,
        RequestCode.GET_ALL_CONSUMER_OFFSET: bool(state.consumer_offsets),
        RequestCode.GET_ALL_DELAY_OFFSET: bool(state.delay_offsets),
    }
    assert is_there == {other: other is not code for other in BODIES}


async def test_without_its_master_nothing_changes() -> None:
    copies, master, state, notices = rig()
    await copies._copy()
    master.bodies = None
    await copies._copy()
    assert "T" in state.topics
    assert notices == [1]


@pytest.mark.parametrize(
    "values",
    [
        {"engine": "raft", "master": "m"},
        {"master": "n1"},
        {"master": "m", "brokers": {}},
    ],
)
def test_a_foreign_master_is_another_node_with_an_address(values: dict[str, Any]) -> None:
    sound: dict[str, Any] = {
        "group": "broker-a",
        "node": "n1",
        "engine": "async",
        "peers": {"m": "127.0.0.1:2", "n1": "127.0.0.1:3"},
        "brokers": {"m": "127.0.0.1:1"},
        "master": "m",
        "master_is_foreign": True,
        "secret_file": None,
    }
    assert BrokerConfig(**sound).master_node == "m"
    with pytest.raises(ConfigError, match=r"master_is_foreign|secret_file"):
        BrokerConfig(**{**sound, **values})
