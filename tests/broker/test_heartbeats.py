"""When a heartbeat is answered that has topics created for what its groups will send back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from broker.groups.clients import ClientProcessor
from campaigns.rig.waiting import until
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.rig import FakeConnection, Rig

RETRY = "%RETRY%G"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.queues.close()


def beat(rig: Rig, *groups: str, model: str = "CLUSTERING") -> FakeConnection:
    """A heartbeat is handled; its answer may follow on the connection."""
    consumers = [{"groupName": group, "messageModel": model} for group in groups]
    body = json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()
    connection = FakeConnection()
    rig.give(rig.make(ClientProcessor).heartbeat, RequestCode.HEART_BEAT, {}, body, connection)
    return connection


def answered(connection: FakeConnection) -> list[int]:
    """Codes of the answers; a member also hears of changes of its groups."""
    return [command.code for command in connection.sent if command.is_response]


async def test_the_first_heartbeat_of_a_group_is_answered_once_name_servers_know_its_topic(
    rig: Rig,
) -> None:
    """A lite pull consumer queries that topic's route next, and gives up without one."""
    registered: list[Callable[[], None]] = []
    rig.desk.when_routes_registered = registered.append
    connection = beat(rig, "G")
    assert rig.desk.clients.consumer_ids("G") == ["c"], "it is a member at once"
    await until(lambda: bool(registered), "the topic is committed")
    assert RETRY in rig.state.topics
    assert not answered(connection)
    registered.pop()()
    assert answered(connection) == [ResponseCode.SUCCESS]
    assert connection.sent[-1].ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "false"


async def test_a_heartbeat_that_creates_nothing_is_answered_at_once(rig: Rig) -> None:
    beat(rig, "G")
    await until(lambda: RETRY in rig.state.topics, "the topic is committed")
    rig.desk.when_routes_registered = lambda _: pytest.fail("name servers have nothing to hear")
    assert answered(beat(rig, "G")) == [ResponseCode.SUCCESS]
    assert answered(beat(rig, "H", model="BROADCASTING")) == [ResponseCode.SUCCESS]
    assert answered(beat(rig)) == [ResponseCode.SUCCESS]
    rig.log.depose()
    assert answered(beat(rig, "I")) == [ResponseCode.SUCCESS], "a follower creates nothing"


@pytest.mark.parametrize(
    "status", [ProposalStatus.LOST_LEADERSHIP, ProposalStatus.TRUNCATED, ProposalStatus.STOPPED]
)
async def test_a_heartbeat_is_answered_where_its_topic_comes_to_nothing(
    rig: Rig, status: ProposalStatus
) -> None:
    rig.log.auto_commit = False
    connection = beat(rig, "G")
    await until(lambda: bool(rig.log.open), "the topic is proposed")
    assert not answered(connection)
    rig.log.depose(status)
    await until(lambda: bool(answered(connection)), "it is answered")
    assert answered(connection) == [ResponseCode.SUCCESS], "it is a member whatever became of it"


async def test_a_topic_whose_replicas_are_late_is_registered_all_the_same(rig: Rig) -> None:
    rig.log.auto_commit = False
    registered: list[Callable[[], None]] = []
    rig.desk.when_routes_registered = registered.append
    beat(rig, "G")
    await until(lambda: bool(rig.log.open), "the topic is proposed")
    rig.log.commit(status=ProposalStatus.FLUSH_SLAVE_TIMEOUT)
    await until(lambda: bool(registered), "it is applied, so name servers are told")


async def test_a_refused_group_costs_the_others_of_its_client_no_topic(rig: Rig) -> None:
    groups = [
        {
            "groupName": "B",
            "messageModel": "SHOUTING",
            "subscriptionDataSet": [{"topic": "T" * 2000}],
        },
        {"groupName": "G"},
    ]
    body = json.dumps({"clientID": "c", "consumerDataSet": groups}).encode()
    handle = rig.make(ClientProcessor).heartbeat
    answer = await rig.ask(handle, RequestCode.HEART_BEAT, {}, body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    await until(lambda: RETRY in rig.state.topics, "the other group has its topic")
