"""Offsets, clients and administration: answers, refusals, notifications."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from broker.admin.admin import AdminProcessor
from broker.entry.topics import SYS_FLAG_UNIT_SUB
from broker.groups.clients import ClientProcessor
from broker.groups.groups import GroupProcessor
from broker.pull.offsets import OffsetProcessor
from broker.pull.pull import PullProcessor
from broker.queues.message_filter import FilterError, parse_tags
from broker.request.clients import Clients, ClientsFullError, Subscription
from broker.send.envelope import Envelope
from broker.send.send import SendProcessor
from campaigns.rig.waiting import turns, until
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import tags_code
from remoting.records.properties import parse_properties_text
from tests.broker.rig import FakeConnection, Rig, pull_fields, send_fields


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    await rig.ask(rig.make(SendProcessor).handle, RequestCode.SEND_MESSAGE_V2, send_fields(), b"x")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


def offset_fields(**more: str) -> dict[str, str]:
    return {"consumerGroup": "G", "topic": "T", "queueId": "0", **more}


async def test_an_offset_is_stored_and_read_back(rig, tmp_path):
    offsets = rig.make(OffsetProcessor, rig.tasks)
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    stored = await rig.ask(offsets.update, code, offset_fields(commitOffset="1"))
    assert stored.code == ResponseCode.SUCCESS
    read = await rig.ask(offsets.query, RequestCode.QUERY_CONSUMER_OFFSET, offset_fields())
    assert read.ext_fields["offset"] == "1"
    replica = rig.replay(tmp_path / "replica")
    assert replica.consumer_offsets == {("G", "T", 0): 1}, "it survives a failover"


async def test_a_query_sees_the_commits_that_came_before_it(rig):
    """Oneway, as consumers commit: they ask for the offset before it is committed."""
    offsets = rig.make(OffsetProcessor, rig.tasks)
    rig.log.auto_commit = False
    for number in (1, 2):
        commit = offset_fields(commitOffset=str(number))
        rig.give(offsets.update, RequestCode.UPDATE_CONSUMER_OFFSET, commit, b"", FakeConnection())
    asked = asyncio.create_task(
        rig.ask(offsets.query, RequestCode.QUERY_CONSUMER_OFFSET, offset_fields())
    )
    other = offset_fields(consumerGroup="other")
    await rig.ask(offsets.query, RequestCode.QUERY_CONSUMER_OFFSET, other)
    assert not asked.done()
    rig.log.commit()
    assert (await asked).ext_fields["offset"] == "2"


async def test_a_query_sees_the_commit_that_came_with_a_pull(rig):
    offsets, pull = rig.make(OffsetProcessor, rig.tasks), rig.make(PullProcessor, rig.tasks)
    rig.log.auto_commit = False
    asked = pull_fields(sysFlag="5", commitOffset="1")
    assert (await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, asked)).code == 0
    query = asyncio.create_task(
        rig.ask(offsets.query, RequestCode.QUERY_CONSUMER_OFFSET, offset_fields())
    )
    await turns(10)
    assert not query.done()
    rig.log.commit()
    assert (await query).ext_fields["offset"] == "1"


async def test_a_query_behind_a_commit_without_an_outcome_is_refused(rig):
    offsets = rig.make(OffsetProcessor, rig.tasks)
    rig.log.auto_commit = False
    commit = offset_fields(commitOffset="1")
    rig.give(offsets.update, RequestCode.UPDATE_CONSUMER_OFFSET, commit, b"", FakeConnection())
    await turns(1)  # it is proposed
    asked = asyncio.create_task(
        rig.ask(offsets.query, RequestCode.QUERY_CONSUMER_OFFSET, offset_fields())
    )
    await turns(1)
    rig.log.depose()
    assert (await asked).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_nothing_stored_is_zero_or_not_found(rig):
    offsets = rig.make(OffsetProcessor, rig.tasks)
    code = RequestCode.QUERY_CONSUMER_OFFSET
    zero = await rig.ask(offsets.query, code, offset_fields())
    assert (zero.code, zero.ext_fields["offset"]) == (ResponseCode.SUCCESS, "0")
    none = await rig.ask(offsets.query, code, offset_fields(setZeroIfNotFound="false"))
    assert none.code == ResponseCode.QUERY_NOT_FOUND
    rig.context.config = replace(rig.config, in_memory_size_bytes_max=1)
    old = await rig.ask(offsets.query, code, offset_fields())
    assert old.code == ResponseCode.QUERY_NOT_FOUND, "the first message is too far back"


async def test_bounds_are_read_on_the_leader_only(rig):
    offsets = rig.make(OffsetProcessor, rig.tasks)
    fields = {"topic": "T", "queueId": "0"}
    top = await rig.ask(offsets.maximum, RequestCode.GET_MAX_OFFSET, fields)
    low = await rig.ask(offsets.minimum, RequestCode.GET_MIN_OFFSET, fields)
    assert (top.ext_fields["offset"], low.ext_fields["offset"]) == ("1", "0")
    unknown = await rig.ask(
        offsets.maximum, RequestCode.GET_MAX_OFFSET, {"topic": "none", "queueId": "123456789"}
    )
    assert unknown.ext_fields["offset"] == "0"
    rig.log.depose()
    for handler, code in (
        (offsets.maximum, RequestCode.GET_MAX_OFFSET),
        (offsets.query, RequestCode.QUERY_CONSUMER_OFFSET),
    ):
        refused = await rig.ask(handler, code, offset_fields())
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_bounds_are_read_after_their_read_point(rig):
    """What was committed before it is in the answer: an end that is too low loses messages of a
    group that begins there."""
    proved = asyncio.Event()
    read_index = rig.log.read_index

    async def late() -> int:
        await proved.wait()
        return await read_index()

    rig.log.read_index = late
    offsets = rig.make(OffsetProcessor, rig.tasks)
    fields = {"topic": "T", "queueId": "0"}
    asked = asyncio.create_task(rig.ask(offsets.maximum, RequestCode.GET_MAX_OFFSET, fields))
    send = rig.make(SendProcessor)
    for key in ("second", "third"):
        stored = await rig.ask(send.handle, RequestCode.SEND_MESSAGE_V2, send_fields(key=key), b"x")
        assert stored.code == ResponseCode.SUCCESS
    assert not asked.done()
    proved.set()
    assert (await asked).ext_fields["offset"] == "3"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"commitOffset": "-1"}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": "x"}, ResponseCode.SYSTEM_ERROR),
        ({"commitOffset": "9" * 40}, ResponseCode.SYSTEM_ERROR),
        ({"commitOffset": "1", "topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"commitOffset": "1", "consumerGroup": "G" * 300}, ResponseCode.INVALID_PARAMETER),
        ({}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_bad_offsets_are_refused(rig, fields, code):
    offsets = rig.make(OffsetProcessor, rig.tasks)
    answer = await rig.ask(
        offsets.update, RequestCode.UPDATE_CONSUMER_OFFSET, offset_fields(**fields)
    )
    assert answer.code == code
    assert rig.state.consumer_offsets == {}


def heartbeat(client: str, group: str = "G", topic: str = "T", tags: str = "*") -> bytes:
    return json.dumps(
        {
            "clientID": client,
            "producerDataSet": [{"groupName": "PG"}],
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "unitMode": False,
                    "subscriptionDataSet": [
                        {"topic": topic, "subString": tags, "subVersion": 1, "tagsSet": []}
                    ],
                }
            ],
        }
    ).encode()


async def test_members_come_and_go_and_hear_of_it(rig):
    clients = rig.make(ClientProcessor)
    first, second = FakeConnection("127.0.0.1:1001"), FakeConnection("127.0.0.1:1002")
    await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, heartbeat("c1"), first)
    await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, heartbeat("c2"), second)
    told = [c for c in first.sent if c.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
    assert told, "the older member hears of the younger"
    assert all(command.is_oneway for command in told)
    listed = await rig.ask(
        clients.consumer_list, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}
    )
    assert json.loads(listed.body) == {"consumerIdList": ["c1", "c2"]}
    assert rig.context.clients.producer("PG") in {first, second}
    before = len(first.sent)
    second.closed = True
    rig.context.clients.connection_closed(second)
    assert len(first.sent) == before + 1
    assert rig.context.clients.consumer_ids("G") == ["c1"]
    first.closed = True
    rig.context.clients.connection_closed(first)
    gone = await rig.ask(
        clients.consumer_list, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"}
    )
    assert gone.code == ResponseCode.SYSTEM_ERROR
    assert rig.context.clients.producer("PG") is None


async def test_a_follower_does_not_say_who_the_members_are(rig):
    """It hears of them by their heartbeats, and may have heard of some of them alone."""
    clients = rig.make(ClientProcessor)
    await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, heartbeat("c1"), FakeConnection())
    fields = {"consumerGroup": "G"}
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    assert (await rig.ask(clients.consumer_list, code, fields)).code == ResponseCode.SUCCESS
    rig.log.depose()
    refused = await rig.ask(clients.consumer_list, code, fields)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "not the leader" in (refused.remark or "")


async def test_a_group_may_want_not_to_hear_of_its_members(rig):
    clients = rig.make(ClientProcessor)
    body = b'{"groupName":"G","notifyConsumerIdsChangedEnable":false}'
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await rig.ask(rig.make(GroupProcessor).update, code, {}, body)).code == 0
    first, second = FakeConnection("127.0.0.1:1001"), FakeConnection("127.0.0.1:1002")
    await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, heartbeat("c1"), first)
    await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, heartbeat("c2"), second)
    rig.context.clients.connection_closed(second)
    codes = {command.code for command in (*first.sent, *second.sent)}
    assert codes == {ResponseCode.SUCCESS}


@pytest.mark.parametrize("notifies", [False, True])
async def test_a_group_may_change_its_mind_about_notices_while_it_has_members(rig, notifies):
    clients, groups = rig.make(ClientProcessor), rig.make(GroupProcessor)
    connections = [FakeConnection(f"127.0.0.1:{port}") for port in (1001, 1002)]
    update = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    for wanted in (not notifies, notifies):
        body = {"groupName": "G", "notifyConsumerIdsChangedEnable": wanted}
        assert (await rig.ask(groups.update, update, {}, json.dumps(body).encode())).code == 0
        code, first = RequestCode.HEART_BEAT, connections[0]
        await rig.ask(clients.heartbeat, code, {}, heartbeat("c1"), first)
    first.sent.clear()
    await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, heartbeat("c2"), connections[1])
    notices = [one.code for one in first.sent]
    assert notices == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] * notifies


async def test_a_heartbeat_makes_the_retry_topic(rig):
    clients = rig.make(ClientProcessor)
    await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, heartbeat("c1"))
    rig.log.commit()
    topic = rig.context.proposer.topic("%RETRY%G")
    assert topic is not None
    assert topic.read_queue_count == 1
    assert topic.sys_flag == 0


async def test_the_retry_topic_of_a_unit_is_marked(rig):
    body = heartbeat("c1").replace(b'"unitMode": false', b'"unitMode": true')
    await rig.ask(rig.make(ClientProcessor).heartbeat, RequestCode.HEART_BEAT, {}, body)
    rig.log.commit()
    topic = rig.context.proposer.topic("%RETRY%G")
    assert topic is not None
    assert topic.sys_flag == SYS_FLAG_UNIT_SUB


@pytest.mark.parametrize(
    ("consumer", "shown"),
    [
        (
            {"messageModel": 1, "consumeType": 1, "consumeFromWhere": 0},
            ("CLUSTERING", "CONSUME_PASSIVELY", "CONSUME_FROM_LAST_OFFSET"),
        ),
        (
            {"messageModel": 0, "consumeType": 0, "consumeFromWhere": 5},
            ("BROADCASTING", "CONSUME_ACTIVELY", "CONSUME_FROM_TIMESTAMP"),
        ),
        ({}, ("CLUSTERING", "CONSUME_PASSIVELY", "CONSUME_FROM_LAST_OFFSET")),
    ],
)
async def test_a_heartbeat_is_read_as_fastjson_reads_it(rig, consumer, shown):
    """The C++ client, and what wraps it, writes numbers as text and names of enums as numbers."""
    data = {"topic": "T", "subString": "*", "subVersion": "1700000000000", "tagsSet": None}
    consumers = [{"groupName": "G", "subscriptionDataSet": [data], **consumer}]
    body = {"clientID": "c1", "producerDataSet": None, "consumerDataSet": consumers}
    clients = rig.make(ClientProcessor)
    answer = await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert rig.context.clients.consumer_ids("G") == ["c1"]
    assert rig.context.clients.subscriptions("G")["T"].version == 1_700_000_000_000
    members = rig.context.clients.describe("G")
    names = ("messageModel", "consumeType", "consumeFromWhere")
    assert tuple(members[name] for name in names) == shown


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"clientID":5}',
        b"\xff\xfe",
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","messageModel":7}]}',
    ],
)
async def test_a_bad_heartbeat_is_refused(rig, body):
    answer = await rig.ask(rig.make(ClientProcessor).heartbeat, RequestCode.HEART_BEAT, {}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark


@pytest.mark.parametrize(
    ("expression", "kind", "code"),
    [
        ("||".join(map(str, range(1_001))), "TAG", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("x" * 65_537, "TAG", ResponseCode.INVALID_PARAMETER),
        ("a = 1 OR " * 8_000 + "a = 1", "SQL92", ResponseCode.INVALID_PARAMETER),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_group_that_is_refused_takes_none_of_its_client_with_it(
    rig, expression, kind, code, place
):
    """A client has one heartbeat for all its groups; they are in any order."""
    groups = ["G0", "G1"]
    groups.insert(place, "bad")
    body = json.loads(heartbeat("c1"))
    good = body["consumerDataSet"].pop()
    for group in groups:
        subscription = {"topic": "T", "subString": "*", "expressionType": "TAG"}
        if group == "bad":
            subscription |= {"subString": expression, "expressionType": kind}
        body["consumerDataSet"].append(
            good | {"groupName": group, "subscriptionDataSet": [subscription]}
        )
    clients = rig.make(ClientProcessor)
    answer = await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, json.dumps(body).encode())
    assert answer.code == code
    for group in ("G0", "G1"):
        assert rig.context.clients.consumer_ids(group) == ["c1"]
    assert rig.context.clients.consumer_ids("bad") == []
    assert rig.context.clients.producer("PG") is not None
    rig.log.commit()
    assert rig.context.proposer.topic("%RETRY%G1") is not None


def test_silent_clients_are_dropped():
    clients = Clients(clients_max=2, client_silence_ms_max=100)
    connection = FakeConnection()
    clients.producer_seen("PG", "a", connection, 0)  # type: ignore[arg-type]
    clients.producer_seen("PG", "b", connection, 60)  # type: ignore[arg-type]
    with pytest.raises(ClientsFullError):
        clients.producer_seen("PG", "c", connection, 60)  # type: ignore[arg-type]
    clients.expire(120)
    clients.producer_seen("PG", "c", connection, 120)  # type: ignore[arg-type]
    clients.unregister("b", "PG", "", connection)  # type: ignore[arg-type]
    clients.unregister("c", "PG", "", connection)  # type: ignore[arg-type]
    assert clients.producer("PG") is None


def test_a_newer_subscription_replaces_an_older_one():
    clients = Clients(clients_max=9, client_silence_ms_max=100)

    def seen(version: int, tags: str) -> None:
        subscription = Subscription(
            topic="T", expression=tags, version=version, filter=parse_tags(tags)
        )
        clients.consumer_seen(
            "G",
            "a",
            FakeConnection(),  # type: ignore[arg-type]
            message_model="CLUSTERING",
            subscriptions=[subscription],
            now_ms=0,
        )

    seen(2, "red")
    seen(1, "blue")
    assert clients.subscriptions("G")["T"].expression == "red"
    seen(3, "green")
    assert clients.subscriptions("G")["T"].filter == parse_tags("green")


@pytest.mark.parametrize(
    ("expression", "codes"),
    [
        (None, None),
        ("*", None),
        ("", None),
        ("a", {tags_code("a")}),
        (" a || b ", {tags_code("a"), tags_code("b")}),
    ],
)
def test_tag_expressions(expression, codes):
    assert parse_tags(expression).codes == codes


def test_members_of_a_group_share_the_filter_of_an_expression():
    """A hundred thousand held pulls hold theirs, each of up to a thousand tags."""
    expression = "||".join(f"tag-{number}" for number in range(1_000))
    assert parse_tags(expression) is parse_tags("".join(list(expression)))


def test_an_expression_without_a_tag_is_refused():
    with pytest.raises(FilterError):
        parse_tags("||")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "UNIQ_KEY\x01K\x02TAGS\x01t\x02",
        "TAGS\x01t\x02UNIQ_KEY\x01K",
        "XUNIQ_KEY\x01no\x02UNIQ_KEY\x01yes\x02",
        "UNIQ_KEY\x01yes\x02XUNIQ_KEY\x01no\x02",
        "UNIQ_KEY\x011\x02UNIQ_KEY\x012\x02",
        "MYTAGS\x01no\x02",
        "TAGS\x01\x02UNIQ_KEY\x01K\x02",
        "TAGS\x01t\x02UNIQ_KEY\x01K\x02UNIQ_KEY\x01\x02",
        "TAGS\x01t\x02UNIQ_KEY\x01K\x02TAGS\x01",
        "TRAN_MSG\x01TRUE\x02UNIQ_KEY\x01K\x02",
        "DELAY\x013\x02",
        "NODELAY\x013\x02TAGS\x01x\x02",
        "POP_CK\x01p\x02",
    ],
)
def test_the_quick_look_at_properties_agrees_with_the_parser(text):
    pairs, envelope = parse_properties_text(text), Envelope(text)
    assert envelope.uniq_key == pairs.get("UNIQ_KEY")
    assert envelope.tags == pairs.get("TAGS")
    assert envelope.is_half == (pairs.get("TRAN_MSG", "").lower() == "true")
    assert (envelope.delay is not None) == ("DELAY" in pairs)
    envelope.drop_receipt()
    envelope.append("KEYS\x01k\x02")
    stored = {name: value for name, value in pairs.items() if name != "POP_CK"} | {"KEYS": "k"}
    assert parse_properties_text(envelope.encoded().decode()) == stored


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"topic": "TBW102"}, "conflict with system topic"),
        ({"topic": "no good"}, "illegal characters"),
        ({"readQueueNums": "0"}, "queues must be"),
        ({"perm": "9"}, "perm 0 to 7"),
        ({"attributes": "k=v"}, "attribute"),
    ],
)
async def test_bad_topics_are_refused(rig, fields, remark):
    good = {
        "topic": "New",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
    }
    admin = rig.make(AdminProcessor)
    answer = await rig.ask(admin.update_topic, RequestCode.UPDATE_AND_CREATE_TOPIC, good | fields)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert remark in (answer.remark or "")


async def test_leader_that_was_deposed_unknowingly_confirms_no_topic(rig):
    """Another leader may have deleted the topic since: only a committed entry is an answer."""
    fields = {
        "topic": "again",
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
    }
    admin, code = rig.make(AdminProcessor), RequestCode.UPDATE_AND_CREATE_TOPIC
    for _ in range(2):
        assert (await rig.ask(admin.update_topic, code, fields)).code == ResponseCode.SUCCESS
    rig.log.auto_commit = False
    connection = FakeConnection()
    rig.give(admin.update_topic, code, fields, b"", connection)
    await turns(5)
    assert not connection.sent
    rig.log.depose(ProposalStatus.LOST_LEADERSHIP)
    await until(lambda: connection.sent)
    assert "outcome unknown" in connection.sent[0].remark


async def test_status_tells_how_the_replica_stands(rig):
    told = rig.make(AdminProcessor).status
    status = json.loads((await rig.ask(told, RequestCode.LEDGERMQ_STATUS, {})).body)
    assert status["role"] == "leader"
    assert "queues" not in status  # a poll must not cost what a broker holds
    answer = await rig.ask(told, RequestCode.LEDGERMQ_STATUS, {"queues": "true"})
    assert json.loads(answer.body)["queues"] == [
        {"topic": "T", "queue": 0, "min_offset": 0, "max_offset": 1}
    ]
