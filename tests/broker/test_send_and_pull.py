"""Sends into the log and pulls out of it: places, bytes, order, duplicates, outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.entry.topics import SYS_FLAG_UNIT
from broker.pull.pull import PullProcessor
from broker.queues.message_filter import parse_tags
from broker.request.clients import Subscription
from broker.send.send import SendProcessor
from broker.send.send_names import FULL, LETTERS
from broker.state.state import StateLimits
from campaigns.rig.waiting import turns, until
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import (
    BatchItem,
    decode_record,
    decode_records,
    encode_batch_body,
    parse_offset_msg_id,
)
from tests.broker.rig import START_MS, FakeConnection, Rig, pull_fields, send_fields

SEND = RequestCode.SEND_MESSAGE_V2
_NEEDED = ("topic", "default_topic", "queue_id", "sys_flag", "born", "flag", "properties")


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def test_a_send_is_answered_with_its_place_and_pulled_byte_for_byte(rig):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    answer = await rig.ask(send.handle, SEND, send_fields(TAGS="red", KEYS="a b"), b"hello")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields["queueOffset"] == "0"
    assert answer.ext_fields["transactionId"] == "K1"
    host, port, position = parse_offset_msg_id(answer.ext_fields["msgId"])
    assert (host, port) == ("127.0.0.1", 10911)
    found = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields())
    assert found.code == ResponseCode.SUCCESS
    assert found.ext_fields["nextBeginOffset"] == "1"
    record = decode_record(found.body)
    assert record.physical_offset == position
    assert record.body == b"hello"
    assert record.property_map()["UNIQ_KEY"] == "K1"
    assert record.property_map()["CLUSTER"] == "DefaultCluster"
    assert record.store_timestamp_ms == START_MS
    assert found.body == rig.log.read(position, len(found.body)), "a pull answers stored bytes"


async def test_requests_of_one_turn_share_one_entry(rig):
    send = rig.make(SendProcessor)
    connection = FakeConnection()
    for at in range(50):
        rig.give(send.handle, SEND, send_fields(key=f"K{at}", queue=at % 4), b"x", connection)
    await rig.ask(send.handle, SEND, send_fields(key="last"), b"x", connection)
    assert len(rig.log.entries) <= 2
    assert [rig.state.next_offset("T", queue) for queue in range(4)] == [14, 13, 12, 12]


async def test_a_retry_with_the_same_key_is_answered_with_the_first_place(rig):
    send = rig.make(SendProcessor)
    first = await rig.ask(send.handle, SEND, send_fields(), b"hello")
    again = await rig.ask(send.handle, SEND, send_fields(), b"hello")
    assert again.code == ResponseCode.SUCCESS
    assert again.ext_fields == first.ext_fields
    assert rig.state.next_offset("T", 0) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (ProposalStatus.COMMITTED, ResponseCode.SUCCESS),
        (ProposalStatus.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (ProposalStatus.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE),
        (ProposalStatus.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
        (ProposalStatus.STOPPED, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_retry_is_answered_no_sooner_than_its_log_confirms(rig, status, code):
    """Where a master applies before its slaves have it, stored is not acknowledged."""
    send = rig.make(SendProcessor)
    rig.log.confirmations = []
    first = await rig.ask(send.handle, SEND, send_fields(), b"hello")
    connection = FakeConnection()
    rig.give(send.handle, SEND, send_fields(), b"hello", connection)
    await turns(1)
    assert connection.sent == []
    (confirm,) = rig.log.confirmations
    confirm(status)
    (again,) = connection.sent
    assert again.code == code
    if code != ResponseCode.SYSTEM_ERROR:
        assert again.ext_fields["msgId"] == first.ext_fields["msgId"]
    assert rig.state.next_offset("T", 0) == 1


@pytest.mark.parametrize(
    "status", [ProposalStatus.FLUSH_SLAVE_TIMEOUT, ProposalStatus.SLAVE_NOT_AVAILABLE]
)
async def test_a_retry_behind_an_attempt_that_timed_out_says_so_too(rig, status):
    send = rig.make(SendProcessor)
    rig.log.auto_commit = False
    rig.log.confirmations = []
    connection = FakeConnection()
    for _ in range(2):
        rig.give(send.handle, SEND, send_fields(), b"hello", connection)
    await turns(1)
    await turns(1)
    rig.log.commit(status=status)
    await until(lambda: len(rig.log.confirmations) == 1)
    rig.log.confirmations[0](status)
    await until(lambda: len(connection.sent) == 2)
    assert len({answer.code for answer in connection.sent}) == 1
    assert [answer.ext_fields["queueOffset"] for answer in connection.sent] == ["0", "0"]


async def test_a_retry_while_the_first_is_in_flight_waits_for_its_outcome(rig):
    send = rig.make(SendProcessor)
    rig.log.auto_commit = False
    connection = FakeConnection()
    rig.give(send.handle, SEND, send_fields(), b"hello", connection)
    rig.give(send.handle, SEND, send_fields(), b"hello", connection)
    await turns(1)
    await turns(1)
    assert connection.sent == []
    rig.log.commit()
    await until(lambda: len(connection.sent) >= 2)
    assert [answer.ext_fields["queueOffset"] for answer in connection.sent] == ["0", "0"]
    assert rig.state.next_offset("T", 0) == 1


async def test_a_retry_behind_the_window_is_refused_and_not_stored(tmp_path):
    rig = Rig(tmp_path, limits=StateLimits(dedupe_window_ms=1_000))
    send = rig.make(SendProcessor)
    await rig.ask(send.handle, SEND, send_fields(key="old"), b"1")
    rig.now_ms += 5_000
    late = await rig.ask(send.handle, SEND, send_fields(key="old"), b"1")
    assert late.code == ResponseCode.MESSAGE_ILLEGAL
    assert "dedupe window" in (late.remark or "")
    await rig.ask(send.handle, SEND, send_fields(key="new"), b"1")  # evicts the old generation
    late = await rig.ask(send.handle, SEND, send_fields(key="old"), b"1")
    assert late.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.state.next_offset("T", 0) == 2
    rig.queues.close()


async def test_a_topic_may_turn_dedupe_off(rig):
    from broker.admin.admin import AdminProcessor

    admin, send = rig.make(AdminProcessor), rig.make(SendProcessor)
    fields = {
        "topic": "Twice",
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        "attributes": "+dedupe=false",
    }
    made = await rig.ask(admin.update_topic, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert made.code == ResponseCode.SUCCESS
    for _ in range(2):
        await rig.ask(send.handle, SEND, send_fields(topic="Twice"), b"x")
    assert rig.state.next_offset("Twice", 0) == 2


async def test_entries_in_flight_count_on_where_the_same_term_is_led_on(rig):
    """The log refused for a while, and nobody else led meanwhile: no offset is given twice."""
    send = rig.make(SendProcessor)
    rig.log.auto_commit = False
    connections = [FakeConnection(), FakeConnection()]
    for key, connection in zip("AB", connections, strict=True):
        fields = send_fields(key=key)
        rig.give(send.handle, SEND, fields, b"x", connection)
        await turns(5)
        rig.context.proposer.lost_leadership()
    rig.log.commit()
    await until(lambda: all(connection.sent for connection in connections))
    offsets = [connection.sent[0].ext_fields["queueOffset"] for connection in connections]
    assert offsets == ["0", "1"]


async def test_lost_leadership_is_unknown_and_a_follower_is_a_definite_refusal(rig):
    send = rig.make(SendProcessor)
    rig.log.auto_commit = False
    connection = FakeConnection()
    rig.give(send.handle, SEND, send_fields(), b"hello", connection)
    await turns(1)
    rig.log.depose()
    await until(lambda: connection.sent)
    assert connection.sent[0].code == ResponseCode.SYSTEM_ERROR
    assert "outcome unknown" in (connection.sent[0].remark or "")
    refused = await rig.ask(send.handle, SEND, send_fields(key="K2"), b"x")
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert refused.remark == "not the leader; leader is unknown"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (ProposalStatus.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
        (ProposalStatus.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (ProposalStatus.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE),
        (ProposalStatus.TRUNCATED, ResponseCode.SERVICE_NOT_AVAILABLE),
        (ProposalStatus.STOPPED, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_every_status_of_the_log_has_its_code(rig, status, code):
    send = rig.make(SendProcessor)
    rig.log.auto_commit = False
    connection = FakeConnection()
    rig.give(send.handle, SEND, send_fields(), b"hello", connection)
    await turns(1)
    rig.log.depose(status)
    await until(lambda: connection.sent)
    assert connection.sent[0].code == code


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"b": "bad topic"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"b": "T" * 128}, ResponseCode.INVALID_PARAMETER, "longer than"),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"c": "nothing"}, ResponseCode.TOPIC_NOT_EXIST, "apply first please"),
        ({"e": "99"}, ResponseCode.INVALID_PARAMETER, "queueId"),
        ({"g": "soon"}, ResponseCode.SYSTEM_ERROR, "the field g is 'soon'"),
        ({"i": "TIMER_DELAY_MS\x01x\x02"}, ResponseCode.MESSAGE_ILLEGAL, "not a number"),
        ({"i": "x\x01" + "y" * 40_000}, ResponseCode.MESSAGE_ILLEGAL, "32KB"),
        ({"f": "128"}, ResponseCode.MESSAGE_ILLEGAL, "32KB"),
    ],
)
async def test_a_bad_send_is_refused_by_name_and_nothing_is_stored(rig, fields, code, remark):
    send = rig.make(SendProcessor)
    answer = await rig.ask(send.handle, SEND, send_fields() | fields, b"x")
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert rig.log.entries == []


async def test_a_batch_is_stored_in_order_and_its_retry_is_recognised(rig):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    body = encode_batch_body(
        [BatchItem(f"m{at}".encode(), f"UNIQ_KEY\x01B{at}\x02".encode()) for at in range(5)]
    )
    fields = send_fields(key="HEAD")
    code = RequestCode.SEND_BATCH_MESSAGE
    first = await rig.ask(send.handle, code, fields, body)
    again = await rig.ask(send.handle, code, fields, body)
    assert first.ext_fields == again.ext_fields
    assert len(first.ext_fields["msgId"].split(",")) == 5
    found = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields())
    records = decode_records(found.body)
    assert [record.body for record in records] == [b"m0", b"m1", b"m2", b"m3", b"m4"]
    assert [record.queue_offset for record in records] == [0, 1, 2, 3, 4]
    assert records[0].property_map() == {"UNIQ_KEY": "B0"}


async def test_a_message_of_a_batch_loses_the_receipt_with_which_it_was_popped(rig):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    properties = "KEYS\x01k\x02POP_CK\x010 1 1000 0 0 broker-a 0 3\x02UNIQ_KEY\x01K\x02"
    body = encode_batch_body([BatchItem(b"m", properties.encode())])
    await rig.ask(send.handle, RequestCode.SEND_BATCH_MESSAGE, send_fields(key="HEAD"), body)
    found = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields())
    (record,) = decode_records(found.body)
    assert record.property_map() == {"KEYS": "k", "UNIQ_KEY": "K"}


@pytest.mark.parametrize(("code", "batch"), [(SEND, "m"), (RequestCode.SEND_MESSAGE, "batch")])
async def test_a_send_says_itself_that_it_is_a_batch(rig, code, batch):
    names = FULL if code == RequestCode.SEND_MESSAGE else LETTERS
    letters = send_fields(key="HEAD")
    fields = {getattr(names, name): letters[getattr(LETTERS, name)] for name in _NEEDED}
    body = encode_batch_body([BatchItem(b"1", b"UNIQ_KEY\x01A\x02"), BatchItem(b"2", b"")])
    handle = rig.make(SendProcessor).handle
    sent = await rig.ask(handle, code, fields | {batch: "true"}, body)
    assert sent.code == ResponseCode.SUCCESS
    assert len(sent.ext_fields["msgId"].split(",")) == 2
    assert sent.ext_fields["transactionId"] == "HEAD"


@pytest.mark.parametrize(
    "fields",
    [{"f": "4"}, {"f": "8"}, {"f": "128"}, {"i": "DELAY\x013\x02"}, {"b": "%RETRY%G"}],
)
async def test_what_no_batch_can_be_is_refused(rig, fields):
    body = encode_batch_body([BatchItem(b"1", b"UNIQ_KEY\x01A\x02")])
    wanted = send_fields(key="HEAD") | {"m": "true"} | fields
    handle = rig.make(SendProcessor).handle
    refused = await rig.ask(handle, RequestCode.SEND_BATCH_MESSAGE, wanted, body)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.log.entries == []


async def test_a_producer_in_unit_mode_makes_a_unit_topic(rig):
    handle = rig.make(SendProcessor).handle
    assert (await rig.ask(handle, SEND, send_fields() | {"k": "true"}, b"x")).code == 0
    assert rig.state.topics["T"].sys_flag == SYS_FLAG_UNIT


@pytest.mark.parametrize("times", [-1, 7])
async def test_attempts_are_stored_as_they_were_counted(rig, times):
    handle = rig.make(SendProcessor).handle
    await rig.ask(handle, SEND, send_fields() | {"j": str(times)}, b"x")
    pull = rig.make(PullProcessor, rig.tasks)
    found = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields())
    assert decode_record(found.body).reconsume_times == times


async def test_tags_filter_on_the_broker(rig):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    for at, tag in enumerate(["red", "blue", "red", "green"]):
        await rig.ask(send.handle, SEND, send_fields(key=f"K{at}", TAGS=tag), tag.encode())
    found = await rig.ask(
        pull.handle, RequestCode.PULL_MESSAGE, pull_fields(subscription="red || green")
    )
    assert [record.body for record in decode_records(found.body)] == [b"red", b"red", b"green"]
    none = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields(subscription="pink"))
    assert none.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert none.ext_fields["nextBeginOffset"] == "4"


@pytest.mark.parametrize("tag", ["café", "订单", "\U0001f600", "a b"])
async def test_tags_of_any_language_filter_on_the_broker(rig, tag):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    for at, each in enumerate([tag, "blue", tag]):
        await rig.ask(send.handle, SEND, send_fields(key=f"K{at}", TAGS=each), each.encode())
    fields = pull_fields(subscription=f"red || {tag}")
    found = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, fields)
    assert [record.body.decode() for record in decode_records(found.body)] == [tag, tag]


@pytest.mark.parametrize("size_max", [1, 1_200, 2_500, 3_600])
async def test_a_pull_that_is_cut_by_bytes_goes_on_with_the_next_message(rig, size_max):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    for at in range(7):
        tags = {} if at == 3 else {"TAGS": "red"}
        await rig.ask(send.handle, SEND, send_fields(key=f"K{at}", **tags), bytes(1_000))
    at, read, pulls = 0, [], 0
    while at < 7:
        fields = pull_fields(offset=at, maxMsgBytes=str(size_max), subscription="red")
        found = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, fields)
        offsets = [record.queue_offset for record in decode_records(found.body)]
        assert offsets, "one message is answered with however small the size is"
        read += offsets
        at = int(found.ext_fields["nextBeginOffset"])
        pulls += 1
    assert read == [0, 1, 2, 4, 5, 6]
    assert pulls > 1, "it was cut"


async def test_a_held_pull_wakes_for_its_tag_only(rig):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    await rig.ask(send.handle, SEND, send_fields(key="first"), b"0")
    connection = FakeConnection()
    fields = pull_fields(offset=1, sysFlag="6", suspendTimeoutMillis="9000", subscription="red")
    rig.give(pull.handle, RequestCode.PULL_MESSAGE, fields, b"", connection)
    await rig.ask(send.handle, SEND, send_fields(key="b", TAGS="blue"), b"1")
    assert connection.sent == []
    await rig.ask(send.handle, SEND, send_fields(key="r", TAGS="red"), b"2")
    assert [record.body for record in decode_records(connection.sent[0].body)] == [b"2"]


PROXY_PULL = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "9000",
    "subscription": "*",
    "expressionType": "TAG",
    "bname": "broker-a",
}
"""As ConsumerProcessor.pullMessage of RocketMQ's proxy fills it in (5.3): without subVersion."""


async def test_a_pull_of_the_proxy_has_no_version_of_its_subscription(rig):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    await rig.ask(send.handle, SEND, send_fields(key="first"), b"0")
    found = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, PROXY_PULL)
    assert [record.body for record in decode_records(found.body)] == [b"0"]
    connection = FakeConnection()
    at_the_end = PROXY_PULL | {"queueOffset": "1"}
    rig.give(pull.handle, RequestCode.PULL_MESSAGE, at_the_end, b"", connection)
    assert connection.sent == [], "it is held"
    await rig.ask(send.handle, SEND, send_fields(key="second"), b"1")
    assert [record.body for record in decode_records(connection.sent[0].body)] == [b"1"]


@pytest.mark.parametrize("absent", ["commitOffset", "suspendTimeoutMillis", "subVersion"])
async def test_a_pull_may_leave_out_what_its_flags_do_not_use(rig, absent):
    pull = rig.make(PullProcessor, rig.tasks)
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"0")
    fields = pull_fields(sysFlag="4")
    del fields[absent]
    assert (await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, fields)).code == 0


async def test_a_pull_without_the_offset_that_its_flag_announces_commits_nothing(rig):
    pull = rig.make(PullProcessor, rig.tasks)
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"0")
    fields = pull_fields(sysFlag="5")
    del fields["commitOffset"]
    assert (await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, fields)).code == 0
    await turns(4)
    assert ("G", "T", 0) not in rig.state.consumer_offsets


async def test_a_held_pull_ends_with_not_found_at_its_deadline(rig):
    pull = rig.make(PullProcessor, rig.tasks)
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"0")
    connection = FakeConnection()
    fields = pull_fields(offset=1, sysFlag="6", suspendTimeoutMillis="9000")
    rig.give(pull.handle, RequestCode.PULL_MESSAGE, fields, b"", connection)
    rig.context.long_polling.expire(rig.passed_ms + 8_999)
    assert connection.sent == []
    rig.context.long_polling.expire(rig.passed_ms + 9_000)
    assert connection.sent[0].code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda state: state.topics.pop("T"), ResponseCode.TOPIC_NOT_EXIST),
        (
            lambda state: state.topics.update(T=replace(state.topics["T"], perm=2)),
            ResponseCode.NO_PERMISSION,
        ),
        (
            lambda state: state.groups.update(G={"consumeEnable": False}),
            ResponseCode.NO_PERMISSION,
        ),
    ],
)
async def test_a_held_pull_is_answered_by_what_holds_at_its_end(rig, change, code):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    await rig.ask(send.handle, SEND, send_fields(), b"x")
    fields = pull_fields(offset=1, sysFlag="6", suspendTimeoutMillis="5000")
    connection = FakeConnection()
    rig.give(pull.handle, RequestCode.PULL_MESSAGE, fields, b"", connection)
    assert not connection.sent
    change(rig.state)
    rig.context.long_polling.expire(rig.passed_ms + 5_000)
    assert connection.sent[0].code == code


@pytest.mark.parametrize(
    ("offset", "code", "next_offset"),
    [(5, ResponseCode.PULL_OFFSET_MOVED, "1"), (-3, ResponseCode.PULL_OFFSET_MOVED, "0")],
)
async def test_an_offset_out_of_range_is_corrected_by_the_leader(rig, offset, code, next_offset):
    pull = rig.make(PullProcessor, rig.tasks)
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"0")
    answer = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields(offset=offset))
    assert answer.code == code
    assert answer.ext_fields["nextBeginOffset"] == next_offset


@pytest.mark.parametrize("offset", [5, -3])
async def test_a_follower_never_corrects_an_offset(rig, offset):
    """A reader that it answered with "nothing new" stayed with it, and asked for ever for what a
    deletion of the topic had taken."""
    pull = rig.make(PullProcessor, rig.tasks)
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"0")
    rig.log.depose()
    answer = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields(offset=offset))
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark.startswith("not the leader")
    found = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, pull_fields())
    assert found.code == ResponseCode.SUCCESS, "what is committed may be read anywhere"


async def test_a_follower_holds_a_pull_for_what_it_may_still_get(rig):
    pull = rig.make(PullProcessor, rig.tasks)
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"0")
    rig.log.depose()
    beyond, gone = FakeConnection(), FakeConnection()
    holding = {"sysFlag": "6", "suspendTimeoutMillis": "5000"}
    code = RequestCode.PULL_MESSAGE
    rig.give(pull.handle, code, pull_fields(offset=5, **holding), b"", beyond)
    rig.give(pull.handle, code, pull_fields(offset=-3, **holding), b"", gone)
    await until(lambda: gone.sent)
    assert gone.sent[0].code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert not beyond.sent
    rig.context.long_polling.expire(rig.passed_ms + 5_000)
    await until(lambda: beyond.sent)
    assert beyond.sent[0].code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_replica_that_has_just_begun_waits_for_a_topic_before_it_denies_it(rig):
    """Java's lite pull consumer lost a `seek` where such a pull was refused with 17."""
    pull = rig.make(PullProcessor, rig.tasks)
    connection, other = FakeConnection(), FakeConnection()
    rig.log.depose()
    rig.give(pull.handle, RequestCode.PULL_MESSAGE, pull_fields(), b"", connection)
    rig.give(pull.handle, RequestCode.PULL_MESSAGE, pull_fields("Other"), b"", other)
    await turns(1)
    assert connection.sent == other.sent == []
    rig.log.lead()
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"0")
    await until(lambda: connection.sent and other.sent)
    assert [record.body for record in decode_records(connection.sent[0].body)] == [b"0"]
    assert other.sent[0].code == ResponseCode.TOPIC_NOT_EXIST, "a leader knows"


async def test_a_replica_denies_no_topic_however_long_it_has_not_come(rig):
    pull = rig.make(PullProcessor, rig.tasks)
    connection = FakeConnection()
    rig.log.depose()
    rig.give(pull.handle, RequestCode.PULL_MESSAGE, pull_fields(), b"", connection)
    await turns(1)
    assert connection.sent == []
    rig.now_ms += 5_000
    await until(lambda: connection.sent)
    assert connection.sent[0].code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_second_replica_computes_the_same_state(rig, tmp_path):
    send = rig.make(SendProcessor)
    for at in range(20):
        await rig.ask(send.handle, SEND, send_fields(key=f"K{at}", queue=at % 3), b"x")
    replica = rig.replay(tmp_path / "replica")
    assert replica.next_offsets == rig.state.next_offsets
    assert replica.topics == rig.state.topics
    for at in range(20):
        assert replica.messages.find(f"K{at}") == rig.state.messages.find(f"K{at}")
    for name in ["T/0", "T/1", "T/2"]:
        file = f"consumequeue/{name}/{0:020d}"
        ours = (tmp_path / "store" / file).read_bytes()
        assert ours == (tmp_path / "replica" / file).read_bytes()


async def test_a_pull_with_a_newer_subscription_than_known_gets_more_not_less(rig):
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    for key, tag in (("a", "red"), ("b", "blue")):
        await rig.ask(send.handle, SEND, send_fields(key=key, TAGS=tag), b"x")
    red = Subscription(topic="T", expression="red", version=7, filter=parse_tags("red"))
    rig.context.clients.consumer_seen(
        "G", "c", FakeConnection(), message_model="CLUSTERING", subscriptions=[red], now_ms=0
    )

    async def found(version: int) -> int:
        fields = pull_fields(sysFlag="0", subVersion=str(version))
        answer = await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, fields)
        return len(decode_records(answer.body))

    assert await found(version=7) == 1
    assert await found(version=8) == 2, "the heartbeat that tells of it is still to come"


async def test_a_topic_made_by_a_send_is_told_before_the_answer(rig):
    told: list[Callable[[], None]] = []
    rig.context.when_routes_registered = told.append
    connection = FakeConnection()
    handle = rig.make(SendProcessor).handle
    rig.give(handle, RequestCode.SEND_MESSAGE_V2, send_fields("New"), b"x", connection)
    await until(lambda: told)
    assert rig.context.state.topics["New"], "name servers are told what is stored"
    assert not connection.sent
    told.pop()()
    assert connection.sent[-1].code == ResponseCode.SUCCESS
    again = await rig.ask(handle, RequestCode.SEND_MESSAGE_V2, send_fields("New", key="K2"), b"x")
    assert again.code == ResponseCode.SUCCESS
    assert not told
