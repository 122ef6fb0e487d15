"""Pulls by expression: what they find, how long they wait, and what makes them fail."""

from __future__ import annotations

import dataclasses
import json

import pytest

from broker.groups.clients import ClientProcessor
from broker.pull.pull import PullProcessor
from broker.send.send import SendProcessor
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import decode_records
from tests.broker.rig import FakeConnection, Rig, pull_fields, send_fields

SEND = RequestCode.SEND_MESSAGE_V2
PULL = RequestCode.PULL_MESSAGE


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


def sql_fields(expression: str, offset: int = 0, **more: str) -> dict[str, str]:
    return pull_fields(offset=offset, subscription=expression, expressionType="SQL92", **more)


async def send(rig: Rig, *ages: int) -> None:
    for age in ages:
        fields = send_fields(key=f"K{age}", age=str(age), TAGS="person")
        answer = await rig.ask(rig.make(SendProcessor).handle, SEND, fields, b"%d" % age)
        assert answer.code == ResponseCode.SUCCESS


async def heartbeat(rig: Rig, kind: str, expression: str, version: int = 1):
    body = {
        "clientID": "c",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": "G",
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [
                    {
                        "topic": "T",
                        "subString": expression,
                        "subVersion": version,
                        "expressionType": kind,
                    }
                ],
            }
        ],
    }
    handler = rig.make(ClientProcessor).heartbeat
    return await rig.ask(handler, RequestCode.HEART_BEAT, {}, json.dumps(body).encode())


def bodies(answer) -> list[bytes]:
    return [record.body for record in decode_records(answer.body)]


async def test_a_pull_that_carries_its_expression_gets_what_matches(rig):
    pull = rig.make(PullProcessor, rig.tasks)
    await send(rig, 10, 20, 30, 40)
    found = await rig.ask(pull.handle, PULL, sql_fields("age > 15 AND TAGS = 'person'"))
    assert bodies(found) == [b"20", b"30", b"40"]
    assert found.ext_fields["nextBeginOffset"] == "4"
    found = await rig.ask(pull.handle, PULL, sql_fields("age > 15", maxMsgNums="2"))
    assert bodies(found) == [b"20", b"30"]
    assert found.ext_fields["nextBeginOffset"] == "3"
    found = await rig.ask(pull.handle, PULL, sql_fields("age > 99"))
    assert found.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert found.ext_fields["nextBeginOffset"] == "4"


async def test_a_pull_without_one_is_filtered_by_the_heartbeat(rig):
    """The Go client says TAG whatever its heartbeats say."""
    pull = rig.make(PullProcessor, rig.tasks)
    await send(rig, 10, 20)
    assert (await heartbeat(rig, "SQL92", "age = 20")).code == ResponseCode.SUCCESS
    fields = pull_fields(sysFlag="0", subVersion="1", subscription="", expressionType="TAG")
    assert bodies(await rig.ask(pull.handle, PULL, fields)) == [b"20"]
    newer = await rig.ask(pull.handle, PULL, fields | {"subVersion": "2"})
    assert newer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    described = rig.context.clients.describe("G")
    assert described["subscriptionTable"]["T"]["expressionType"] == "SQL92"


@pytest.mark.parametrize("kind", ["SQL92", "TAG"])
async def test_a_held_pull_gets_what_its_group_wants_when_it_is_answered(rig, kind: str):
    """As in RocketMQ, where a held pull is processed anew: what was wanted before is nothing to it,
    and it must not go on behind what is wanted now."""
    expressions = {"SQL92": ("age = 20", "age = 30"), "TAG": ("others", "person")}[kind]
    pull, connection = rig.make(PullProcessor, rig.tasks), FakeConnection()
    assert (await heartbeat(rig, kind, expressions[0])).code == ResponseCode.SUCCESS
    await send(rig, 10)
    fields = pull_fields(offset=1, sysFlag="2", suspendTimeoutMillis="5000", subVersion="1")
    rig.give(pull.handle, PULL, fields, b"", connection)
    assert (await heartbeat(rig, kind, expressions[1], version=2)).code == ResponseCode.SUCCESS
    await send(rig, 30)
    rig.context.long_polling.expire(rig.passed_ms + 5_000)
    assert bodies(connection.sent[0]) == [b"30"]


async def test_an_expression_that_is_none(rig):
    pull, clients = rig.make(PullProcessor, rig.tasks), rig.make(ClientProcessor)
    await send(rig, 10)
    refused = await rig.ask(pull.handle, PULL, sql_fields("age >"))
    assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert (await heartbeat(rig, "SQL92", "age >")).code == ResponseCode.SUCCESS
    refused = await rig.ask(pull.handle, PULL, pull_fields(sysFlag="0", subVersion="1"))
    assert refused.code == ResponseCode.FILTER_DATA_NOT_EXIST

    async def checked(kind: str | None, expression: str) -> int:
        data = {"topic": "T", "subString": expression, "expressionType": kind}
        body = json.dumps({"clientId": "c", "group": "G", "subscriptionData": data}).encode()
        code = RequestCode.CHECK_CLIENT_CONFIG
        return (await rig.ask(clients.check_config, code, {}, body)).code

    assert await checked("SQL92", "age >") == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert await checked("SQL92", "age > 1") == ResponseCode.SUCCESS
    assert await checked("TAG", "whatever") == ResponseCode.SUCCESS
    assert await checked("LUA", "1") == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    bad = await rig.ask(clients.check_config, RequestCode.CHECK_CLIENT_CONFIG, {}, b"[")
    assert bad.code == ResponseCode.SYSTEM_ERROR


async def test_expressions_can_be_switched_off(rig):
    rig.context.config = dataclasses.replace(rig.config, enable_property_filter=False)
    pull, clients = rig.make(PullProcessor, rig.tasks), rig.make(ClientProcessor)
    await send(rig, 10)
    refused = await rig.ask(pull.handle, PULL, sql_fields("age = 10"))
    assert (refused.code, "SQL92" in refused.remark) == (ResponseCode.SYSTEM_ERROR, True)
    data = {"topic": "T", "subString": "age = 10", "expressionType": "SQL92"}
    body = json.dumps({"subscriptionData": data}).encode()
    code = RequestCode.CHECK_CLIENT_CONFIG
    assert (await rig.ask(clients.check_config, code, {}, body)).code == ResponseCode.SYSTEM_ERROR
    assert bodies(await rig.ask(pull.handle, PULL, pull_fields())) == [b"10"]


async def test_a_held_pull_sleeps_on_through_what_it_does_not_want(rig):
    pull, connection = rig.make(PullProcessor, rig.tasks), FakeConnection()
    await send(rig, 10)
    waits = sql_fields("age > 15", offset=1, sysFlag="6", suspendTimeoutMillis="15000")
    rig.give(pull.handle, PULL, waits, b"", connection)
    await send(rig, 11, 12)
    assert (connection.sent, len(rig.context.long_polling)) == ([], 1)
    await send(rig, 20)
    (answer,) = connection.sent
    assert bodies(answer) == [b"20"]
    assert answer.ext_fields["nextBeginOffset"] == "4"
    assert len(rig.context.long_polling) == 0


async def test_a_held_pull_that_matched_nothing_moves_on_when_its_time_is_up(rig):
    pull, connection = rig.make(PullProcessor, rig.tasks), FakeConnection()
    await send(rig, 10)
    waits = sql_fields("age > 15", offset=1, sysFlag="6", suspendTimeoutMillis="15000")
    rig.give(pull.handle, PULL, waits, b"", connection)
    await send(rig, 11)
    rig.now_ms += 15_000
    rig.context.long_polling.expire(rig.passed_ms)
    (answer,) = connection.sent
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.ext_fields["nextBeginOffset"] == "2"


async def test_no_pull_is_held_by_a_broker_that_stops(rig):
    pull, connection = rig.make(PullProcessor, rig.tasks), FakeConnection()
    waits = sql_fields("age > 15", sysFlag="6", suspendTimeoutMillis="15000")
    await send(rig, 10)
    rig.give(pull.handle, PULL, waits | {"queueOffset": "1"}, b"", connection)
    rig.context.long_polling.release_all()
    assert [answer.code for answer in connection.sent] == [ResponseCode.PULL_NOT_FOUND]
    rig.give(pull.handle, PULL, waits | {"queueOffset": "1"}, b"", connection)
    assert len(connection.sent) == 2


async def test_who_is_unknown_or_may_not_broadcast_is_refused(rig):
    pull = rig.make(PullProcessor, rig.tasks)
    await send(rig, 10)
    fields = pull_fields(sysFlag="0")
    came_back = await rig.ask(pull.handle, PULL, fields)
    assert came_back.code == ResponseCode.SUCCESS, "a broker that came back serves its consumers"
    for kind in ({"expressionType": "SQL92"}, {"expressionType": ""}):
        unknown = await rig.ask(pull.handle, PULL, fields | kind)
        assert unknown.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert "group info" in unknown.remark
    rig.context.clients.consumer_seen(
        "G", "c", FakeConnection(), message_model="BROADCASTING", subscriptions=[], now_ms=0
    )
    missing = await rig.ask(pull.handle, PULL, fields)
    assert missing.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    rig.state.groups["G"] = {"consumeBroadcastEnable": False}
    assert (await rig.ask(pull.handle, PULL, fields)).code == ResponseCode.NO_PERMISSION
