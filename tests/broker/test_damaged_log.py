"""Messages that are damaged on this replica's disk: none of them is served, the others are."""

from __future__ import annotations

import pytest

from broker.delay.delivery import DelayDelivery
from broker.pull.pull import PullProcessor
from broker.pull.queries import QueryProcessor
from broker.send.send import SendProcessor
from broker.send.send_back import SendBackProcessor
from broker.transaction.check_back import CheckBack
from broker.transaction.end_transaction import EndTransactionProcessor
from campaigns.rig.waiting import turns
from raft.log.damage import Damage
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_records, parse_offset_msg_id
from tests.broker.rig import Rig, pull_fields, send_fields


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def send(rig: Rig, key: str, **properties: str) -> RemotingCommand:
    fields = send_fields(key=key, **properties)
    code = RequestCode.SEND_MESSAGE_V2
    answer = await rig.ask(rig.make(SendProcessor).handle, code, fields, b"body")
    assert answer.code == ResponseCode.SUCCESS
    return answer


def damage(rig: Rig, first: int, last: int) -> None:
    """Damage entries [first, last], counted from 0."""
    entries = rig.log.entries
    end = entries[last + 1].position if last + 1 < len(entries) else len(rig.log.data)
    rig.log.damage = Damage(
        first_index=first + 1,
        last_index=last + 1,
        position=entries[first].position,
        end_position=end,
        chain_before=0,
        chain_after=0,
        path="commitlog",
        reason="rotten",
    )


async def test_a_pull_stops_before_the_damage_and_is_refused_at_it(rig):
    for number in range(6):
        await send(rig, f"K{number}")
    damage(rig, 2, 3)
    pull = rig.make(PullProcessor, rig.tasks).handle
    found = await rig.ask(pull, RequestCode.PULL_MESSAGE, pull_fields())
    assert found.code == ResponseCode.SUCCESS
    assert [record.queue_offset for record in decode_records(found.body)] == [0, 1]
    assert found.ext_fields["nextBeginOffset"] == "2"
    refused = await rig.ask(pull, RequestCode.PULL_MESSAGE, pull_fields(offset=2))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "the message at 2 is damaged here" in (refused.remark or "")
    behind = await rig.ask(pull, RequestCode.PULL_MESSAGE, pull_fields(offset=4))
    assert [record.queue_offset for record in decode_records(behind.body)] == [4, 5]
    rig.log.damage = None
    mended = await rig.ask(pull, RequestCode.PULL_MESSAGE, pull_fields(offset=2))
    assert len(decode_records(mended.body)) == 4


async def test_what_needs_a_damaged_message_is_refused_and_may_be_asked_again(rig):
    first = await send(rig, "K0")
    _, _, position = parse_offset_msg_id(first.ext_fields["msgId"])
    damage(rig, 0, 0)
    queries = rig.make(QueryProcessor, rig.tasks)
    queue = {"topic": "T", "queueId": "0", "timestamp": "1"}
    for handler, code, fields in (
        (queries.view_message, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)}),
        (queries.earliest_store_time, RequestCode.GET_EARLIEST_MSG_STORETIME, queue),
        (queries.search_offset, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue),
        (
            rig.make(SendBackProcessor).handle,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            {"offset": str(position), "group": "G", "delayLevel": "0"},
        ),
        (rig.make(SendProcessor).handle, RequestCode.SEND_MESSAGE_V2, send_fields(key="K0")),
    ):
        answer = await rig.ask(handler, code, fields, b"body")
        assert answer.code == ResponseCode.SYSTEM_ERROR, answer.remark
        assert "is damaged here and is fetched" in (answer.remark or "")
    assert rig.state.next_offset("T", 0) == 1


async def test_a_damaged_half_waits_for_its_repair(rig):
    half = await send(rig, "H", TRAN_MSG="true", PGROUP="PG")
    damage(rig, 0, 0)
    rig.now_ms += 3_600_000
    rig.make(CheckBack).round()
    _, _, position = parse_offset_msg_id(half.ext_fields["msgId"])
    fields = {
        "producerGroup": "PG",
        "tranStateTableOffset": half.ext_fields["queueOffset"],
        "commitLogOffset": str(position),
        "commitOrRollback": "8",
    }
    end = rig.make(EndTransactionProcessor, rig.tasks).handle
    refused = await rig.ask(end, RequestCode.END_TRANSACTION, fields)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert len(rig.state.halves) == 1
    rig.log.damage = None
    assert (await rig.ask(end, RequestCode.END_TRANSACTION, fields)).code == ResponseCode.SUCCESS
    assert rig.state.next_offset("T", 0) == 1


async def test_damaged_delayed_messages_wait_for_their_repair(rig):
    await send(rig, "D0", DELAY="1")
    await send(rig, "D1", DELAY="1")
    damage(rig, 1, 1)
    rig.now_ms += 10_000
    delivery = rig.make(DelayDelivery)
    for _ in range(3):
        delivery.round()
        await turns(10)
    assert rig.state.next_offset("T", 0) == 1
    rig.log.damage = None
    delivery.round()
    await turns(10)
    assert rig.state.next_offset("T", 0) == 2
