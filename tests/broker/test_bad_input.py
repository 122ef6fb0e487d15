"""What no client should send: each is refused, the process and the log live on."""

from __future__ import annotations

import json

import pytest

from broker.admin.admin import AdminProcessor
from broker.groups.clients import ClientProcessor
from broker.pull.pull import PullProcessor
from broker.request.clients import Clients, ClientsFullError
from broker.request.request import Request
from broker.send.send import SendProcessor
from broker.transaction.check_back import CheckBack
from broker.transaction.end_transaction import EndTransactionProcessor
from campaigns.rig.waiting import turns, until
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.frame import encode
from remoting.records.message import BatchItem, encode_batch_body
from tests.broker.rig import FakeConnection, Rig, send_fields
from tests.work import counted

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


def heartbeat(group: str) -> bytes:
    return json.dumps(
        {
            "clientID": "c",
            "producerDataSet": [],
            "consumerDataSet": [{"groupName": group, "subscriptionDataSet": []}],
        }
    ).encode()


@pytest.mark.parametrize("group", ["a\x00b", "../../../tmp/x", "x" * 300, "", "a/b", "ä"])
async def test_a_group_whose_name_is_no_file_name_gets_no_retry_topic(rig, group):
    # Its topic's ConsumeQueue would be a path: every replica would fail to apply, for ever.
    clients = rig.make(ClientProcessor)
    answer = await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, heartbeat(group))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "the specified group" in (answer.remark or "")
    await turns(1)
    assert rig.context.proposer.topic(f"%RETRY%{group}") is None


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"clientID":7}', b'{"a":' * 50_000]
)
async def test_a_heartbeat_that_is_none_is_refused(rig, body):
    clients = rig.make(ClientProcessor)
    answer = await rig.ask(clients.heartbeat, RequestCode.HEART_BEAT, {}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("digits", ["9" * 5_000, "9" * 20, "٣", "-1", "0", "x"])
async def test_a_strange_immunity_does_not_stop_the_check_back(rig, digits):
    send = rig.make(SendProcessor)
    fields = send_fields(TRAN_MSG="true", PGROUP="PG", CHECK_IMMUNITY_TIME_IN_SECONDS=digits)
    answer = await rig.ask(send.handle, SEND, fields, b"half")
    assert answer.code == ResponseCode.SUCCESS
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "c", producer, rig.passed_ms)
    rig.now_ms += 60_000
    rig.make(CheckBack).round()
    await until(lambda: producer.sent)
    assert producer.sent[0].code == RequestCode.CHECK_TRANSACTION_STATE


async def test_a_pull_commits_no_offset_of_a_nameless_group(rig):
    await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(), b"x")
    pull = rig.make(PullProcessor, rig.tasks)
    fields = {
        "consumerGroup": "g" * 100_000,
        "topic": "T",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "5",
        "commitOffset": "1",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    await rig.ask(pull.handle, RequestCode.PULL_MESSAGE, fields)
    await turns(5)
    assert rig.state.consumer_offsets == {}


async def test_properties_that_java_would_read_as_negative_are_refused_in_a_batch(rig):
    long = b"A\x01" + b"b" * 40_000
    size = 20 + 1 + 2 + len(long)
    body = b"".join(
        (
            size.to_bytes(4, "big"),
            bytes(12),
            (1).to_bytes(4, "big"),
            b"x",
            len(long).to_bytes(2, "big"),
            long,
        )
    )
    answer = await rig.ask(rig.make(SendProcessor).handle, BATCH, send_fields(), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.state.next_offset("T", 0) == 0


async def test_a_batch_with_one_key_twice_is_refused(rig):
    twice = [BatchItem(b"x", b"UNIQ_KEY\x01K\x02", 0)] * 2
    fields = send_fields(key=None)
    answer = await rig.ask(rig.make(SendProcessor).handle, BATCH, fields, encode_batch_body(twice))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "UNIQ_KEY" in (answer.remark or "")


async def test_a_message_that_is_only_marked_as_a_half_is_refused(rig):
    answer = await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields() | {"f": "4"})
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.state.next_offset("T", 0) == 0


async def test_attributes_are_bounded_and_can_be_removed(rig):
    admin = rig.make(AdminProcessor)
    fields = {
        "topic": "T",
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }

    async def update(attributes: str, **more: str) -> int:
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        request = fields | {"attributes": attributes} | more
        return (await rig.ask(admin.update_topic, code, request)).code

    assert await update("+a=" + "x" * 10_000_000) == ResponseCode.INVALID_PARAMETER
    assert await update("", topicSysFlag="-1") == ResponseCode.INVALID_PARAMETER
    assert await update("", topicSysFlag=str(1 << 40)) == ResponseCode.SYSTEM_ERROR
    assert await update("-dedupe") == ResponseCode.INVALID_PARAMETER
    assert await update("+dedupe=false,+reserve.time=5") == ResponseCode.SUCCESS
    assert await update("+nothing=1") == ResponseCode.INVALID_PARAMETER
    assert await update("+dedupe=maybe") == ResponseCode.INVALID_PARAMETER
    assert await update("-dedupe") == ResponseCode.SUCCESS
    assert rig.state.topics["T"].attributes == {"reserve.time": "5"}


async def test_a_batch_that_the_log_does_not_take_leaves_no_hole(rig, monkeypatch):
    send = rig.make(SendProcessor)
    first = await rig.ask(send.handle, SEND, send_fields(key="K0"), b"x")
    propose = rig.log.propose

    def too_large(fill):
        monkeypatch.setattr(rig.log, "propose", propose)
        fill(rig.log.next_slot())
        raise ValueError("payload is larger than an entry")

    monkeypatch.setattr(rig.log, "propose", too_large)
    refused = await rig.ask(send.handle, SEND, send_fields(key="K1"), b"x")
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    after = await rig.ask(send.handle, SEND, send_fields(key="K2"), b"x")
    assert [first.ext_fields["queueOffset"], after.ext_fields["queueOffset"]] == ["0", "1"]


async def test_decisions_that_wait_for_a_discard_are_answered(rig):
    send, end = rig.make(SendProcessor), rig.make(EndTransactionProcessor, rig.tasks)
    half = await rig.ask(send.handle, SEND, send_fields(TRAN_MSG="true", PGROUP="PG"), b"x")
    rig.now_ms += rig.config.transaction_retention_ms + 1
    rig.log.auto_commit = False
    rig.make(CheckBack).round()
    connection = FakeConnection()
    rig.give(
        end.handle,
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": "PG",
            "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": str(int(half.ext_fields["msgId"][16:], 16)),
            "commitOrRollback": "8",
        },
        b"",
        connection,
    )
    await turns(1)
    rig.log.commit()
    await until(lambda: connection.sent)
    assert connection.sent[0].code == ResponseCode.ILLEGAL_OPERATION
    assert "discarded" in (connection.sent[0].remark or "")


async def test_retries_that_wait_for_one_message_are_bounded(rig):
    send = rig.make(SendProcessor)
    rig.log.auto_commit = False
    connection = FakeConnection()
    for _ in range(1_100):
        rig.give(send.handle, SEND, send_fields(), b"x", connection)
    assert {answer.code for answer in connection.sent} == {ResponseCode.SYSTEM_BUSY}
    assert len(connection.sent) == 99


def test_a_refusal_that_quotes_a_huge_field_fits_a_frame():
    sent: list[RemotingCommand] = []
    connection = FakeConnection()
    connection.sent = sent
    request = Request(connection, RemotingCommand(code=1, opaque=1, ext_fields={}))  # type: ignore[arg-type]
    request.reply(ResponseCode.SYSTEM_ERROR, "x" * 17_000_000)
    assert len(encode(sent[0])) < 10_000


def test_groups_are_bounded():
    clients = Clients(clients_max=10, client_silence_ms_max=1_000, groups_max=2)
    connection = FakeConnection()
    for group in ("a", "b", "a"):
        clients.producer_seen(group, "c", connection, 0)  # type: ignore[arg-type]
    with pytest.raises(ClientsFullError, match="2 producer groups"):
        clients.producer_seen("c", "c", connection, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
async def test_a_key_is_as_long_as_half_a_million_may_be(rig, code):
    send = rig.make(SendProcessor)
    for key, wanted in (("k" * 1_024, ResponseCode.SUCCESS), ("k" * 1_025, 13)):
        fields, body = send_fields(key=key), b"x"
        if code == RequestCode.SEND_BATCH_MESSAGE:
            properties = fields["i"].encode()
            fields, body = send_fields(key=None), encode_batch_body([(b"x", properties, 0)])
        assert (await rig.ask(send.handle, code, fields, body)).code == wanted


async def test_properties_of_any_size_are_refused_before_they_are_read(rig):
    fields = send_fields() | {"i": "a\x01b\x02TRAN_MSG\x01x\x02" * 1_000_000}
    with counted() as work:
        answer = await rig.ask(rig.make(SendProcessor).handle, SEND, fields, b"x")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert work.lines < 1_000
