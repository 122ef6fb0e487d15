"""One UNIQ_KEY, one message: across kinds of messages, under equal hashes, behind retention."""

from __future__ import annotations

import asyncio

import pytest

from broker.delay.timers import Timers
from broker.process.processors import Processors
from broker.process.request_table import dispatch_of
from broker.send.send import SendProcessor
from broker.state import dedupe
from broker.transaction.end_transaction import EndTransactionProcessor
from campaigns.rig.waiting import until
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import BatchItem, encode_batch_body, parse_offset_msg_id
from tests.broker.rig import FakeConnection, Rig, send_fields

SEND = RequestCode.SEND_MESSAGE_V2
HALF = {"TRAN_MSG": "true", "PGROUP": "PG"}


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def send(rig: Rig, key: str | None, **properties: str) -> RemotingCommand:
    fields = send_fields(key=key, **properties)
    return await rig.ask(rig.make(SendProcessor).handle, SEND, fields, b"body")


async def commit(rig: Rig, half: RemotingCommand, key: str, decision: str = "8") -> RemotingCommand:
    _, _, position = parse_offset_msg_id(half.ext_fields["msgId"])
    return await rig.ask(
        rig.make(EndTransactionProcessor, rig.tasks).handle,
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": "PG",
            "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": str(position),
            "commitOrRollback": decision,
            "msgId": key,
        },
    )


async def test_a_key_of_a_transaction_is_none_for_a_message(rig):
    half = await send(rig, "K", **HALF)
    refused = await send(rig, "K")
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "UNIQ_KEY K is that of a transaction already" in (refused.remark or "")
    assert (await commit(rig, half, "K")).code == ResponseCode.SUCCESS
    assert rig.state.next_offset("T", 0) == 1
    again = await send(rig, "K")
    assert again.code == ResponseCode.SUCCESS, "stored once, by the commit"
    assert rig.state.next_offset("T", 0) == 1
    retried = await send(rig, "K", **HALF)
    assert retried.ext_fields["msgId"] == half.ext_fields["msgId"]


@pytest.mark.parametrize("first", [{}, {"DELAY": "3"}, {"TIMER_DELAY_MS": "9000"}, HALF], ids=str)
async def test_another_message_of_the_same_key_is_not_taken_for_a_retry(rig, first):
    """Java leaves the key on what it has received; nothing of the second topic may pass for
    stored."""
    handle = rig.make(SendProcessor).handle
    rig.log.auto_commit = False
    sent = [FakeConnection(), FakeConnection()]
    for topic, connection in zip("TU", sent, strict=True):
        rig.give(handle, SEND, send_fields(topic, key="K", **first), b"body", connection)
        await until(lambda: rig.log.open)  # the second waits for the first
    rig.log.auto_commit = True
    rig.log.commit()
    await until(lambda: all(connection.sent for connection in sent))
    ours, other = (connection.sent[0] for connection in sent)
    assert ours.code == ResponseCode.SUCCESS, ours.remark
    later = await rig.ask(handle, SEND, send_fields("U", key="K", **first), b"body")
    for refused in (other, later):
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert refused.remark == (
            "UNIQ_KEY K is that of a message in topic T already: send this one with another"
        )
    again = await rig.ask(handle, SEND, send_fields("T", key="K", **first), b"body")
    assert again.ext_fields["msgId"] == ours.ext_fields["msgId"]
    changed = await rig.ask(handle, SEND, send_fields("T", key="K", **first), b"Body")
    assert changed.code == ResponseCode.MESSAGE_ILLEGAL
    assert changed.remark == (
        "outcome unknown: UNIQ_KEY K is that of a message with another body already"
    )
    fresh = await rig.ask(handle, SEND, send_fields("U", key="L", **first), b"body")
    assert fresh.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("what", ["recalled", "deleted with its topic"])
async def test_a_message_that_is_gone_is_not_answered_as_stored(rig, what):
    handlers = dispatch_of(rig.make(Processors, rig.tasks))
    first = await send(rig, "K", TIMER_DELAY_MS="9000")
    if what == "recalled":
        code = RequestCode.RECALL_MESSAGE
        fields = {"topic": "T", "recallHandle": first.ext_fields["recallHandle"]}
    else:
        code, fields = RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}
    assert (await rig.ask(handlers[code], code, fields)).code == ResponseCode.SUCCESS
    again = await send(rig, "K", TIMER_DELAY_MS="9000")
    assert again.code == ResponseCode.MESSAGE_ILLEGAL
    assert again.remark == f"outcome unknown: the message of UNIQ_KEY K was {what}"


@pytest.mark.parametrize(
    "name", ["TAGS", "KEYS", "__SHARDINGKEY", "CORRELATION_ID", "DELAY", "TIMER_DELAY_MS"]
)
async def test_a_message_that_is_changed_and_sent_again_is_no_retry(rig, name):
    """Applications of Java fill one message again and again; its key stays."""
    for before, after in (({name: "1"}, {name: "2"}), ({}, {name: "3"}), ({name: "4"}, {})):
        key = f"K{before}{after}"
        first = await send(rig, key, **before)
        assert first.code == ResponseCode.SUCCESS, first.remark
        refused = await send(rig, key, **after)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert refused.remark == (
            f"outcome unknown: UNIQ_KEY {key} is that of a message with another {name} already"
        )
        again = await send(rig, key, **before, traceparent="of each attempt")
        assert again.ext_fields["msgId"] == first.ext_fields["msgId"]


async def test_a_timer_that_has_been_delivered_is_stored(rig):
    first = await send(rig, "K", TIMER_DELAY_MS="9000")
    rig.now_ms += 9_000
    rig.make(Timers).round()
    await until(lambda: not len(rig.state.timers))
    again = await send(rig, "K", TIMER_DELAY_MS="9000")
    assert again.ext_fields["msgId"] == first.ext_fields["msgId"]


ROLLBACK = "12"


async def test_a_half_that_was_rolled_back_is_refused_when_it_is_sent_again(rig):
    half = await send(rig, "K", **HALF)
    again = await send(rig, "K", **HALF)
    assert again.ext_fields["msgId"] == half.ext_fields["msgId"], "undecided: a retry"
    assert (await commit(rig, half, "K", ROLLBACK)).code == ResponseCode.SUCCESS
    refused = await send(rig, "K", **HALF)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "K was rolled back already" in (refused.remark or "")
    assert (refused.remark or "").startswith("outcome unknown: "), "its half is stored"
    assert (await send(rig, "K2", **HALF)).code == ResponseCode.SUCCESS


async def test_a_half_whose_decision_is_on_its_way_may_be_either(rig):
    half = await send(rig, "K", **HALF)
    rig.log.auto_commit = False
    ending = asyncio.ensure_future(commit(rig, half, "K", ROLLBACK))
    await until(lambda: rig.log.open, "the decision is on its way")
    refused = await send(rig, "K", **HALF)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "outcome unknown" in (refused.remark or "")
    rig.log.commit()
    assert (await ending).code == ResponseCode.SUCCESS


async def test_a_key_of_a_message_is_none_for_a_transaction(rig):
    assert (await send(rig, "K")).code == ResponseCode.SUCCESS
    refused = await send(rig, "K", **HALF)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "UNIQ_KEY K is that of a message that is stored already" in (refused.remark or "")
    assert len(rig.state.halves) == 0


async def test_a_batch_with_a_key_of_a_transaction_is_refused(rig):
    await send(rig, "K", **HALF)
    body = encode_batch_body([BatchItem(b"b", f"UNIQ_KEY\x01{k}\x02".encode()) for k in "JK"])
    answer = await rig.ask(
        rig.make(SendProcessor).handle,
        RequestCode.SEND_BATCH_MESSAGE,
        send_fields(key=None) | {"m": "true"},
        body,
    )
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.state.next_offset("T", 0) == 0


async def test_another_key_of_the_same_hash_is_refused_and_not_answered_with_its_place(
    rig, monkeypatch
):
    monkeypatch.setattr(dedupe, "xxh3_64_intdigest", len)
    first = await send(rig, "K1")
    other = await send(rig, "K2")
    assert other.code == ResponseCode.MESSAGE_ILLEGAL
    assert "K2 can't be told from K1" in (other.remark or "")
    again = await send(rig, "K1")
    assert again.ext_fields["msgId"] == first.ext_fields["msgId"]
    assert rig.state.next_offset("T", 0) == 1


async def test_messages_of_a_batch_without_keys_of_their_own_are_found_again(rig):
    body = encode_batch_body([BatchItem(b"b", b""), BatchItem(b"c", b"")])
    fields = send_fields(key="BATCH") | {"m": "true"}
    handle = rig.make(SendProcessor).handle
    first = await rig.ask(handle, RequestCode.SEND_BATCH_MESSAGE, fields, body)
    again = await rig.ask(handle, RequestCode.SEND_BATCH_MESSAGE, fields, body)
    assert first.code == again.code == ResponseCode.SUCCESS
    assert first.ext_fields["msgId"] == again.ext_fields["msgId"]
    assert rig.state.next_offset("T", 0) == 2


async def test_a_retry_of_what_retention_took_is_refused(rig):
    await send(rig, "K1")
    await send(rig, "K2")
    await rig.log.retain_from(rig.log.entries[1].position)
    refused = await send(rig, "K1")
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "may be stored already" in (refused.remark or "")
    assert rig.state.next_offset("T", 0) == 2
    assert (await send(rig, "K2")).ext_fields["queueOffset"] == "1"
