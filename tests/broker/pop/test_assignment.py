"""Who consumes what, as the broker tells it: modes, shares, strategies."""

from __future__ import annotations

import json

import pytest

from broker.pop.assignment import AssignmentProcessor
from broker.send.send import SendProcessor
from remoting.protocol.codes import RequestCode, ResponseCode
from tests.broker.rig import FakeConnection, Rig, send_fields


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    await rig.ask(rig.make(SendProcessor).handle, 310, send_fields(), b"x")  # makes T: 4 queues
    for client in "abc":
        rig.context.clients.consumer_seen(
            "G", client, FakeConnection(), message_model="CLUSTERING", subscriptions=[], now_ms=0
        )
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def assigned(rig: Rig, client: str, **more: str):
    body = {"topic": "T", "consumerGroup": "G", "clientId": client, "strategyName": "AVG"}
    body |= {"messageModel": "CLUSTERING", **more}
    answer = await rig.ask(
        rig.make(AssignmentProcessor, rig.tasks).query,
        RequestCode.QUERY_ASSIGNMENT,
        {},
        json.dumps(body).encode(),
    )
    rows = json.loads(answer.body)["messageQueueAssignments"]
    if rows is None:
        return None
    assert all(row["messageQueue"]["brokerName"] == "broker-a" for row in rows)
    return [(row["mode"], row["messageQueue"]["queueId"]) for row in rows]


async def set_mode(rig: Rig, **more: object):
    body = {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 0, **more}
    return await rig.ask(
        rig.make(AssignmentProcessor, rig.tasks).set_mode,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        {},
        json.dumps(body).encode(),
    )


async def test_without_a_mode_queues_are_pulled(rig):
    assert await assigned(rig, "a") == [("PULL", 0), ("PULL", 1)]
    assert await assigned(rig, "b") == [("PULL", 2)]
    assert await assigned(rig, "c") == [("PULL", 3)]
    assert await assigned(rig, "a", strategyName="AVG_BY_CIRCLE") == [("PULL", 0), ("PULL", 3)]
    assert await assigned(rig, "c", messageModel="BROADCASTING") == [
        ("PULL", queue) for queue in range(4)
    ]
    assert await assigned(rig, "nobody") == []
    assert await assigned(rig, "a", consumerGroup="other") is None, "clients keep what they have"
    assert await assigned(rig, "a", strategyName="CONFIG") is None
    assert await assigned(rig, "a", topic="none") is None


async def test_a_mode_is_replicated_and_obeyed(rig, tmp_path):
    assert (await set_mode(rig)).code == ResponseCode.SUCCESS
    assert await assigned(rig, "b") == [("POP", -1)]
    assert (await set_mode(rig, popShareQueueNum=1)).code == ResponseCode.SUCCESS
    assert await assigned(rig, "b") == [("POP", 2), ("POP", 3)], "its own and the next one's"
    assert await assigned(rig, "c") == [("POP", 3), ("POP", 0), ("POP", 1)]
    assert rig.replay(tmp_path / "replica").pop.modes == rig.state.pop.modes
    assert (await set_mode(rig, mode="PULL")).code == ResponseCode.SUCCESS
    assert await assigned(rig, "b") == [("PULL", 2)]


async def test_members_beyond_the_queues_have_one_each(rig):
    for client in "defg":
        rig.context.clients.consumer_seen(
            "G", client, FakeConnection(), message_model="CLUSTERING", subscriptions=[], now_ms=0
        )
    await set_mode(rig, popShareQueueNum=1)
    assert await assigned(rig, "e") == [("POP", 0)]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "%RETRY%G"}, ResponseCode.NO_PERMISSION),
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER),
        ({"popShareQueueNum": -1}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "a/b"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": 5}, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_bad_modes_are_refused(rig, more, code):
    assert (await set_mode(rig, **more)).code == code
    assert rig.state.pop.modes == {}
