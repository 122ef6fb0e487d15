"""Questions that RocketMQ's clients and tools ask beside sending and pulling."""

from __future__ import annotations

import json

import pytest

from broker.admin.client_listing import ClientListingProcessor
from broker.admin.consume_stats import ConsumeStatsProcessor
from broker.admin.runtime_info import RuntimeInfoProcessor
from broker.entry.topics import SCHEDULE_TOPIC
from broker.groups.groups import GroupProcessor
from broker.pull.offsets import OffsetProcessor
from broker.pull.pull import PullProcessor
from broker.pull.queries import QueryProcessor
from broker.request.pull_offsets import PullOffsets
from broker.send.send import SendProcessor
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import decode_record, encode_record
from tests.broker.rig import START_MS, FakeConnection, Rig, pull_fields, send_fields

QUEUE = {"topic": "T", "queueId": "0"}


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def send_at(rig: Rig, key: str, now_ms: int, body: bytes = b"x") -> int:
    """Store a message at a time of the broker's clock; its position."""
    rig.now_ms = now_ms
    handle = rig.make(SendProcessor).handle
    answer = await rig.ask(handle, RequestCode.SEND_MESSAGE_V2, send_fields(key=key), body)
    return int(answer.ext_fields["msgId"][16:], 16)


@pytest.mark.parametrize(
    ("timestamp", "boundary", "offset"),
    [
        (0, "", 0),
        (10, "", 0),
        (11, "", 1),
        (20, "LOWER", 1),
        (30, "", 3),
        (31, "", 4),
        (0, "UPPER", 0),
        (10, "UPPER", 0),
        (20, "UPPER", 2),
        (25, "UPPER", 2),
        (99, "UPPER", 3),
    ],
)
async def test_a_queue_is_searched_by_time(rig, timestamp, boundary, offset):
    for key, at_ms in (("a", 10), ("b", 20), ("c", 20), ("d", 30)):
        await send_at(rig, key, START_MS + at_ms)
    queries = rig.make(QueryProcessor, rig.tasks)
    fields = QUEUE | {"timestamp": str(START_MS + timestamp), "boundaryType": boundary}
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    answer = await rig.ask(queries.search_offset, code, fields)
    assert answer.ext_fields["offset"] == str(offset)


@pytest.mark.parametrize(("timestamp", "boundary", "offset"), [(10, "LOWER", 2), (10, "UPPER", 0)])
async def test_a_time_before_all_that_is_left(rig, timestamp, boundary, offset):
    for key, at_ms in (("a", 10), ("b", 20), ("c", 30)):
        position = await send_at(rig, key, START_MS + at_ms)
    rig.context.queues.get("T", 0).trim(position)
    assert rig.context.queues.get("T", 0).min_offset == 2
    queries = rig.make(QueryProcessor, rig.tasks)
    fields = QUEUE | {"timestamp": str(START_MS + timestamp), "boundaryType": boundary}
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    answer = await rig.ask(queries.search_offset, code, fields)
    assert answer.ext_fields["offset"] == str(offset)


async def test_the_earliest_store_time_and_a_topics_bounds(rig):
    queries = rig.make(QueryProcessor, rig.tasks)
    earliest = RequestCode.GET_EARLIEST_MSG_STORETIME
    none = await rig.ask(queries.earliest_store_time, earliest, QUEUE)
    assert none.ext_fields["timestamp"] == "-1"
    await send_at(rig, "a", START_MS + 10)
    await send_at(rig, "b", START_MS + 20)
    first = await rig.ask(queries.earliest_store_time, earliest, QUEUE)
    assert first.ext_fields["timestamp"] == str(START_MS + 10)
    progress = rig.make(ConsumeStatsProcessor, rig.tasks)
    code = RequestCode.GET_TOPIC_STATS_INFO
    stats = await rig.ask(progress.topic_stats, code, {"topic": "T"})
    table = fastjson.parse(stats.body)["offsetTable"]
    assert table['{"brokerName":"broker-a","queueId":0,"topic":"T"}'] == {
        "minOffset": 0,
        "maxOffset": 2,
        "lastUpdateTimestamp": START_MS + 20,
    }
    unknown = await rig.ask(progress.topic_stats, code, {"topic": "nope"})
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("offset", "consumed_ms", "delay_ms"), [(0, 10, 90), (1, 10, 70), (2, 30, 40), (3, 60, 0)]
)
async def test_for_how_long_the_next_message_waits(rig, offset, consumed_ms, delay_ms):
    for key, at_ms in (("a", 10), ("b", 30), ("c", 60)):
        await send_at(rig, key, START_MS + at_ms)
    offsets = rig.make(OffsetProcessor, rig.tasks)
    commit = QUEUE | {"consumerGroup": "G", "commitOffset": str(offset)}
    await rig.ask(offsets.update, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    rig.now_ms = START_MS + 100
    progress = rig.make(ConsumeStatsProcessor, rig.tasks)
    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    answer = await rig.ask(progress.time_span, code, {"topic": "T", "group": "G"})
    (span,) = [
        each
        for each in fastjson.parse(answer.body)["consumeTimeSpanSet"]
        if each["messageQueue"]["queueId"] == 0
    ]
    del span["messageQueue"]
    assert span == {
        "minTimeStamp": START_MS + 10,
        "maxTimeStamp": START_MS + 60,
        "consumeTimeStamp": START_MS + consumed_ms,
        "delayTime": delay_ms,
    }


async def test_how_far_a_group_is_behind(rig):
    for key in ("a", "b", "c"):
        await send_at(rig, key, START_MS)
    offsets = rig.make(OffsetProcessor, rig.tasks)
    commit = QUEUE | {"consumerGroup": "G", "commitOffset": "1"}
    await rig.ask(offsets.update, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    progress = rig.make(ConsumeStatsProcessor, rig.tasks)
    code = RequestCode.GET_CONSUME_STATS
    answer = await rig.ask(progress.consume_stats, code, {"consumerGroup": "G"})
    table = fastjson.parse(answer.body)["offsetTable"]
    assert len(table) == rig.state.topics["T"].read_queue_count
    assert table['{"brokerName":"broker-a","queueId":0,"topic":"T"}'] == {
        "brokerOffset": 3,
        "consumerOffset": 1,
        "pullOffset": 1,
        "lastTimestamp": START_MS,
    }
    pull = rig.make(PullProcessor, rig.tasks)
    asked = pull_fields(offset=1, maxMsgNums="1")
    assert (await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, asked)).code == 0
    answer = await rig.ask(progress.consume_stats, code, {"consumerGroup": "G"})
    table = fastjson.parse(answer.body)["offsetTable"]
    row = table['{"brokerName":"broker-a","queueId":0,"topic":"T"}']
    assert (row["consumerOffset"], row["pullOffset"]) == (1, 2), "one is in flight"
    code_of_all = RequestCode.GET_BROKER_CONSUME_STATS
    answer = await rig.ask(progress.broker_consume_stats, code_of_all, {"isOrder": "false"})
    told = fastjson.parse(answer.body)
    assert (told["totalDiff"], told["totalInflightDiff"]) == (2, 1)
    other = await rig.ask(progress.consume_stats, code, {"consumerGroup": "other"})
    assert json.loads(other.body)["offsetTable"] == {}


async def test_the_rate_of_a_group_is_that_of_all_its_topics(rig):
    offsets = rig.make(OffsetProcessor, rig.tasks)
    for topic in ("A", "T", "Z"):
        await rig.ask(rig.make(SendProcessor).handle, 310, send_fields(topic, key=topic), b"x")
        commit = {"topic": topic, "queueId": "0", "consumerGroup": "G", "commitOffset": "1"}
        await rig.ask(offsets.update, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    stats = rig.context.stats
    stats.sample(START_MS)
    for topic, count in (("A", 100), ("T", 10), ("Z", 0)):
        stats.got("G", topic, count, count)
    stats.sample(START_MS + 10_000)
    progress = rig.make(ConsumeStatsProcessor, rig.tasks)
    rates = {}
    for topic in ("", "A", "T"):
        asked = {"consumerGroup": "G", "topic": topic}
        answer = await rig.ask(progress.consume_stats, RequestCode.GET_CONSUME_STATS, asked)
        rates[topic] = fastjson.parse(answer.body)["consumeTps"]
    assert rates["A"] > rates["T"] > 0
    assert rates[""] == pytest.approx(rates["A"] + rates["T"])


async def test_a_message_is_viewed_by_its_position_and_only_there(rig):
    forged = encode_record(decode_record(await _forged(rig)))
    position = await send_at(rig, "a", START_MS, b"body " + forged)
    queries = rig.make(QueryProcessor, rig.tasks)
    code = RequestCode.VIEW_MESSAGE_BY_ID
    seen = await rig.ask(queries.view_message, code, {"offset": str(position)})
    assert decode_record(seen.body).body == b"body " + forged
    inside = rig.log.data.index(forged, position)
    for wrong in (inside, position + 1, position - 8, -1, 1 << 60):
        refused = await rig.ask(queries.view_message, code, {"offset": str(wrong)})
        assert refused.code == ResponseCode.SYSTEM_ERROR, wrong


async def test_a_message_is_viewed_under_the_topic_that_it_was_sent_to(rig):
    """As RocketMQ 5.5.1, whose rule for messages that wait elsewhere is the same."""
    view, code = rig.make(QueryProcessor, rig.tasks).view_message, RequestCode.VIEW_MESSAGE_BY_ID
    position = await send_at(rig, "a", START_MS, b"a")
    send = rig.make(SendProcessor)
    waiting = rig.log.next_slot().position
    later = await rig.ask(
        send.handle, RequestCode.SEND_MESSAGE_V2, send_fields(key="w", DELAY="3"), b"w"
    )
    assert later.code == ResponseCode.SUCCESS
    (held,) = [
        place
        for place in range(waiting, len(rig.log.data))
        if await _viewed(rig, place) is not None
    ]
    for place in (position, held):
        for topic in ("T", "", " "):
            fields = {"offset": str(place), "topic": topic}
            assert (await rig.ask(view, code, fields)).code == ResponseCode.SUCCESS, topic
        for topic in ("other", "t", SCHEDULE_TOPIC):
            refused = await rig.ask(view, code, {"offset": str(place), "topic": topic})
            assert refused.code == ResponseCode.NO_PERMISSION, topic
            assert refused.remark == "The topic does not match the message"
            assert not refused.body


async def _viewed(rig: Rig, position: int) -> bytes | None:
    view = rig.make(QueryProcessor, rig.tasks).view_message
    answer = await rig.ask(view, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)})
    return answer.body if answer.code == ResponseCode.SUCCESS else None


async def _forged(rig: Rig) -> bytes:
    """A record that stands in the log already; its copy is to hide in another's body."""
    position = await send_at(rig, "forged", START_MS)
    return rig.context.read_record(position)


async def test_queries_are_answered_by_the_leader_only(rig):
    rig.log.leader = False
    queries = rig.make(QueryProcessor, rig.tasks)
    answer = await rig.ask(
        queries.search_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        QUEUE | {"timestamp": "0"},
    )
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_group_is_configured_replicated_and_obeyed(rig, tmp_path):
    groups = rig.make(GroupProcessor)
    update = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    body = b"{groupName:'G',consumeEnable:false,retryMaxTimes:3}"
    assert (await rig.ask(groups.update, update, {}, body)).code == ResponseCode.SUCCESS
    assert rig.replay(tmp_path / "replica").groups["G"]["retryMaxTimes"] == 3
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    table = json.loads((await rig.ask(groups.all_groups, code, {})).body)
    assert table["subscriptionGroupTable"]["G"]["consumeEnable"] is False
    pull = rig.make(PullProcessor, rig.tasks)
    refused = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields())
    assert refused.code == ResponseCode.NO_PERMISSION
    for wrong in (b"", b"{}", b'{"groupName":"a/b"}', b'{"groupName":"G","retryMaxTimes":1e30}'):
        assert (await rig.ask(groups.update, update, {}, wrong)).code == (
            ResponseCode.INVALID_PARAMETER
        )


def test_pull_offsets_are_bounded_and_never_behind_the_committed():
    pulled = PullOffsets(count_max=2)
    for queue_id, offset in ((0, 5), (1, 6), (0, 7), (2, 8)):
        pulled.pulled("G", "T", queue_id, offset)
    pulled.pulled("no group\n", "T", 1, 9)
    assert [pulled.get("G", "T", queue_id, 0) for queue_id in range(3)] == [0, 6, 8]
    assert pulled.get("G", "T", 1, 10) == 10
    assert pulled.get("no group\n", "T", 1, 0) == 0
    pulled.pulled("G", "T", 1, 3)  # after a reset it goes on further back
    assert pulled.get("G", "T", 1, 0) == 3


async def test_a_producer_is_told_as_java_writes_it(rig):
    connections = rig.make(ClientListingProcessor)
    rig.context.clients.producer_seen("PG", "c1", FakeConnection("10.0.0.1:50007"), now_ms=0)
    rig.now_ms += 2_000
    told = await rig.ask(connections.all_producers, RequestCode.GET_ALL_PRODUCER_INFO, {})
    info = json.loads(told.body)["data"]["PG"][0]
    assert info["remoteIP"] == "/10.0.0.1:50007"
    assert info["lastUpdateTimestamp"] == START_MS, "when it was seen, by the wall clock"
    code, fields = RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "PG"}
    one = await rig.ask(connections.producers, code, fields)
    assert json.loads(one.body)["connectionSet"][0]["clientAddr"] == "10.0.0.1:50007"


async def test_connections_of_a_group_and_the_brokers_own_table(rig):
    connections = rig.make(ClientListingProcessor)
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    offline = await rig.ask(connections.consumers, code, {"consumerGroup": "G"})
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    rig.context.clients.consumer_seen(
        "G", "c1", FakeConnection(), message_model="CLUSTERING", subscriptions=[], now_ms=0
    )
    online = await rig.ask(connections.consumers, code, {"consumerGroup": "G"})
    assert json.loads(online.body)["connectionSet"][0]["clientId"] == "c1"
    rig.directory.mkdir(exist_ok=True)
    info = rig.make(RuntimeInfoProcessor)
    answer = await rig.ask(info.handle, RequestCode.GET_BROKER_RUNTIME_INFO, {})
    assert json.loads(answer.body)["table"]["brokerVersionDesc"] == "V5_3_3"


async def test_the_oldest_message_of_many_queues_is_told_without_reading_them(rig, monkeypatch):
    """Dashboards poll it, and a broker may have tens of thousands."""
    rig.directory.mkdir(exist_ok=True)
    info = rig.make(RuntimeInfoProcessor)

    async def shown_ms() -> int:
        answer = await rig.ask(info.handle, RequestCode.GET_BROKER_RUNTIME_INFO, {})
        return int(json.loads(answer.body)["table"]["earliestMessageTimeStamp"])

    for key, wait_ms in (("K0", 0), ("K1", 3_600_000), ("K2", 90_000)):
        rig.now_ms += wait_ms
        await rig.ask(rig.make(SendProcessor).handle, 310, send_fields(key=key), b"x")
    assert await shown_ms() == START_MS
    monkeypatch.setattr("broker.admin.runtime_info._QUEUES_READ_MAX", 0)
    monkeypatch.setattr("broker.queues.consume_queue.ConsumeQueue.read", None)
    assert await shown_ms() == START_MS
    rig.log.begin_position = rig.log.entries[1].position
    assert await shown_ms() == START_MS + 3_600_000
