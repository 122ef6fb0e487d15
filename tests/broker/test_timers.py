"""Messages with a delivery time of their own: waiting, delivery, recall, what a replica keeps."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.delay.delivery import DelayDelivery
from broker.delay.recall import RecallProcessor
from broker.delay.recall_handle import RecallHandle, parse_recall_handle, recall_handle
from broker.delay.timers import Timers
from broker.delay.waiting import DelayError, Waiting, waiting_of
from broker.entry.payload import UNIT, DeliverTimersCommand, RecallTimerCommand, decode_payload
from broker.entry.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from broker.process.housekeeping import Housekeeper
from broker.request.room import DiskUse
from broker.send.send import SendProcessor
from broker.state.state import StateLimits
from broker.state.state_image import decode_image, encode_image
from broker.state.timer_table import Timer, TimerTable
from broker.transaction.end_transaction import EndTransactionProcessor
from campaigns.rig.waiting import turns
from raft.log.damage import Damage
from raft.replicated_log import ProposalStatus
from remoting.connections.rpc import RemotingClient
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records import sys_flag as flags
from remoting.records.message import MessageRecord, decode_record, tags_code
from tests.broker.rig import START_MS, Rig, send_fields

SEND = RequestCode.SEND_MESSAGE_V2
THREE_DAYS_MS = 3 * 86_400_000


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def send(rig: Rig, body: bytes = b"x", **fields: Any) -> RemotingCommand:
    return await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(**fields), body)


def messages(rig: Rig, topic: str, queue_id: int = 0) -> list[MessageRecord]:
    queue = rig.queues.find(topic, queue_id)
    if queue is None:
        return []
    units = UNIT.iter_unpack(queue.read(queue.min_offset, 1_000))
    return [decode_record(rig.context.read_record(position)) for position, _, _ in units]


def bodies(rig: Rig, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in messages(rig, topic, queue_id)]


async def deliver(rig: Rig, timers: Timers, now_ms: int) -> None:
    rig.now_ms = now_ms
    timers.round()
    await turns(10)


# Where a message waits ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "waits"),
    [
        ({}, None),
        ({"TIMER_DELAY_SEC": "3"}, 4_000),
        ({"TIMER_DELAY_MS": "3"}, 1_003),
        ({"TIMER_DELIVER_MS": "1001"}, 1_001),
        ({"TIMER_DELIVER_MS": "+1001"}, 1_001),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "7", "TIMER_DELIVER_MS": "9999"}, 2_000),
        ({"TIMER_DELIVER_MS": "1000"}, None),
        ({"TIMER_DELAY_MS": "0"}, None),
        ({"TIMER_DELAY_MS": "-5"}, None),
        ({"TIMER_DELAY_SEC": "3", "TIMER_OUT_MS": "1"}, None),
        ({"TIMER_DELAY_MS": "60000"}, 61_000),
        ({"DELAY": "0", "TIMER_DELAY_MS": "5"}, 1_005),
        ({"DELAY": "-1", "TIMER_DELAY_MS": "5"}, 1_005),
    ],
)
def test_when_a_message_is_due(properties, waits):
    waiting = waiting_of(properties, now_ms=1_000, delay_ms_max=60_000)
    wanted = None if waits is None else Waiting(topic=TIMER_TOPIC, queue_id=0, deliver_ms=waits)
    assert waiting == wanted


def test_a_level_wins_over_a_time():
    properties = {"DELAY": "3", "TIMER_DELAY_SEC": "1"}
    waiting = waiting_of(properties, now_ms=0, delay_ms_max=1)
    assert waiting == Waiting(topic=SCHEDULE_TOPIC, queue_id=2)
    assert waiting.properties == {}


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "soon"},
        {"TIMER_DELAY_MS": "1_0"},
        {"TIMER_DELIVER_MS": "٣"},
        {"TIMER_DELIVER_MS": "9" * 20},
        {"TIMER_DELAY_MS": "60001"},
        {"DELAY": "x"},
    ],
)
def test_a_delay_that_can_not_be(properties):
    with pytest.raises(DelayError):
        waiting_of(properties, now_ms=1_000, delay_ms_max=60_000)


# Delivery ----------------------------------------------------------------------------------------


async def test_a_timer_message_comes_at_its_time_and_never_before(rig, tmp_path):
    answer = await send(rig, b"later", queue=2, TIMER_DELAY_MS="1500", TAGS="red", KEYS="k")
    assert (answer.code, answer.ext_fields["queueId"]) == (ResponseCode.SUCCESS, "2")
    (waiting,) = messages(rig, TIMER_TOPIC)
    properties = waiting.property_map()
    assert properties["TIMER_OUT_MS"] == str(START_MS + 1_499)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "2")
    timers = rig.make(Timers)
    await deliver(rig, timers, START_MS + 1_499)
    assert bodies(rig, "T", 2) == []
    entries = len(rig.log.entries)
    rig.now_ms = START_MS + 1_500
    timers.round()
    await deliver(rig, timers, START_MS + 1_500)
    await deliver(rig, timers, START_MS + 9_500)
    (record,) = messages(rig, "T", 2)
    properties = record.property_map()
    assert (record.body, properties["TAGS"], properties["UNIQ_KEY"]) == (b"later", "red", "K1")
    assert properties["TIMER_ENQUEUE_MS"] == str(START_MS)
    assert properties["TIMER_DEQUEUE_MS"] == str(START_MS + 1_500)
    assert "REAL_TOPIC" not in properties
    assert UNIT.unpack(rig.queues.get("T", 2).read(0, 1))[2] == tags_code("red")
    assert len(rig.log.entries) == entries + 1, "message and removal are one entry"
    assert decode_payload(rig.log.entries[-1].payload).commands == [DeliverTimersCommand([0])]
    assert len(rig.replay(tmp_path / "replica").timers) == 0
    delivered = rig.context.stats.item("TIMER_DEQUEUE_NUMS", TIMER_TOPIC)
    assert delivered is not None
    assert delivered.sum == 1


async def test_what_is_due_earlier_comes_first(rig):
    for number, delay in enumerate((300, 100, 200, 100)):
        await send(rig, b"%d" % number, key=f"K{number}", TIMER_DELAY_MS=str(delay))
    timers = rig.make(Timers)
    await deliver(rig, timers, START_MS + 100)
    assert bodies(rig) == [b"1", b"3"]
    await deliver(rig, timers, START_MS + 300)
    assert bodies(rig) == [b"1", b"3", b"2", b"0"]


async def test_many_are_delivered_in_pieces(rig):
    for number in range(600):
        await send(rig, b"%d" % number, key=f"K{number}", TIMER_DELAY_MS="100")
    timers = rig.make(Timers)
    await deliver(rig, timers, START_MS + 100)
    assert bodies(rig) == [b"%d" % number for number in range(600)]


async def test_a_time_that_has_passed_is_no_delay(rig):
    answer = await send(rig, TIMER_DELIVER_MS=str(START_MS))
    assert "recallHandle" not in answer.ext_fields
    assert bodies(rig) == [b"x"]


@pytest.mark.parametrize(
    "more", [{"TIMER_DELAY_SEC": "259201"}, {"TIMER_DELAY_MS": "a"}, {"TIMER_DELIVER_MS": "9" * 19}]
)
async def test_too_late_or_no_number_is_refused(rig, more):
    assert (await send(rig, **more)).code == ResponseCode.MESSAGE_ILLEGAL
    assert rig.state.next_offset(TIMER_TOPIC, 0) == 0


async def test_a_delivery_that_fails_is_done_again_by_the_next_leader(rig):
    await send(rig, TIMER_DELAY_MS="10")
    timers = rig.make(Timers)
    rig.log.auto_commit = False
    await deliver(rig, timers, START_MS + 10)
    assert len(rig.log.open) == 1
    rig.log.depose(ProposalStatus.TRUNCATED)
    await turns(10)
    await deliver(rig, timers, START_MS + 20)
    assert rig.log.open == [], "a follower delivers nothing"
    rig.log.leader = rig.log.auto_commit = True
    rig.machine.on_role_change(rig.log.status())
    await deliver(rig, timers, START_MS + 20)
    await deliver(rig, timers, START_MS + 30)
    assert bodies(rig) == [b"x"]


async def test_a_retried_send_waits_once_and_is_told_of_the_first_time(rig):
    first = await send(rig, TIMER_DELAY_MS="1000")
    rig.now_ms += 100
    second = await send(rig, TIMER_DELAY_MS="1000")
    assert first.ext_fields == second.ext_fields
    await deliver(rig, rig.make(Timers), START_MS + 5_000)
    third = await send(rig, TIMER_DELAY_MS="1000")
    assert third.ext_fields["msgId"] == first.ext_fields["msgId"]
    assert len(messages(rig, "T")) == len(messages(rig, TIMER_TOPIC)) == 1


async def test_nobody_sends_into_the_waiting_queue(rig):
    assert (await send(rig, topic=TIMER_TOPIC)).code == ResponseCode.NO_PERMISSION


async def test_no_more_wait_than_may(tmp_path):
    rig = Rig(tmp_path, limits=StateLimits(timers_max=2))
    for number in range(2):
        assert (await send(rig, key=f"K{number}", TIMER_DELAY_MS="10")).code == 0
    full = await send(rig, key="K3", TIMER_DELAY_MS="10")
    assert full.code == ResponseCode.SYSTEM_BUSY
    assert "max num limit is 2" in full.remark
    assert (await send(rig, key="K4", DELAY="1")).code == 0
    rig.queues.close()


async def test_a_message_consumed_and_sent_again_does_not_wait_twice(rig):
    await send(rig, TIMER_DELAY_SEC="1", TIMER_OUT_MS=str(START_MS - 1))
    assert bodies(rig) == [b"x"]


async def test_damaged_here_it_waits_and_holds_up_nothing_else(rig):
    position = int((await send(rig, b"bad", TIMER_DELAY_MS="10")).ext_fields["msgId"][16:], 16)
    await send(rig, b"good", key="K2", TIMER_DELAY_MS="10")
    rig.log.damage = Damage(
        first_index=1,
        last_index=1,
        position=position,
        end_position=position + 1,
        chain_before=0,
        chain_after=0,
        path="commitlog/0",
        reason="rot",
    )
    timers = rig.make(Timers)
    await deliver(rig, timers, START_MS + 10)
    assert bodies(rig) == [b"good"]
    rig.log.damage = None
    await deliver(rig, timers, START_MS + 20)
    assert bodies(rig) == [b"good"], "not asked again at once"
    await deliver(rig, timers, START_MS + 1_100)
    assert bodies(rig) == [b"good", b"bad"]


async def test_retention_never_takes_what_waits(rig):
    await send(rig, b"plain", key="K0")
    waiting = await send(rig, b"waits", key="K1", TIMER_DELAY_MS="1000")
    for number in range(2, 20):
        await send(rig, b"plain", key=f"K{number}")
    rig.context.config = replace(rig.config, log_size_bytes_max=1)
    housekeeper = rig.make(
        Housekeeper,
        rig.tasks,
        RemotingClient(),
        measure=lambda _: DiskUse(used=1, free=1 << 40),
    )

    async def keep_house() -> int:
        housekeeper.poll()
        housekeeper.round()
        await turns(10)
        return rig.log.begin_position

    position = int(waiting.ext_fields["msgId"][16:], 16)
    assert 0 < await keep_house() <= position
    timers = rig.make(Timers)
    await deliver(rig, timers, START_MS + 1_000)
    assert bodies(rig)[-1:] == [b"waits"]
    assert await keep_house() > position


# Transactions ------------------------------------------------------------------------------------


async def half_and_commit(
    rig: Rig, meanwhile: Callable[[], object] = lambda: None, **more: Any
) -> RemotingCommand:
    half = await send(rig, b"tx", TRAN_MSG="true", PGROUP="PG", **more)
    assert half.code == ResponseCode.SUCCESS, half.remark
    assert len(messages(rig, HALF_TOPIC)) == 1
    rig.now_ms += 5_000
    meanwhile()
    fields = {
        "producerGroup": "PG",
        "tranStateTableOffset": half.ext_fields["queueOffset"],
        "commitLogOffset": str(int(half.ext_fields["msgId"][16:], 16)),
        "commitOrRollback": str(flags.TRANSACTION_COMMIT),
    }
    processor = rig.make(EndTransactionProcessor, rig.tasks)
    return await rig.ask(processor.handle, RequestCode.END_TRANSACTION, fields)


async def test_a_transactions_delay_begins_with_its_commit(rig, tmp_path):
    assert (await half_and_commit(rig, DELAY="2", TAGS="red")).code == ResponseCode.SUCCESS
    assert bodies(rig) == []
    delivery = rig.make(DelayDelivery)
    rig.now_ms = START_MS + 9_999
    delivery.round()
    await turns(10)
    assert bodies(rig) == []
    rig.now_ms = START_MS + 10_000
    delivery.round()
    await turns(10)
    (record,) = messages(rig, "T")
    assert record.body == b"tx"
    assert record.sys_flag & flags.TRANSACTION_MASK == flags.TRANSACTION_COMMIT
    assert rig.replay(tmp_path / "replica").delay_offsets == {1: 1}


@pytest.mark.parametrize(
    ("more", "due_ms"),
    [({"TIMER_DELAY_MS": "700"}, 5_700), ({"TIMER_DELIVER_MS": str(START_MS + 6_000)}, 6_000)],
)
async def test_a_transactions_time_counts_from_its_commit(rig, more, due_ms):
    assert (await half_and_commit(rig, **more)).code == ResponseCode.SUCCESS
    timers = rig.make(Timers)
    await deliver(rig, timers, START_MS + due_ms - 1)
    assert bodies(rig) == []
    await deliver(rig, timers, START_MS + due_ms)
    assert bodies(rig) == [b"tx"]


async def test_a_transaction_whose_time_has_passed_is_delivered_at_once(rig):
    await half_and_commit(rig, TIMER_DELIVER_MS=str(START_MS + 1))
    assert bodies(rig) == [b"tx"]


@pytest.mark.parametrize(
    "changed", [{"timer_max_delay_sec": 60}, {"timer_wheel_enable": False}, {"timers_max": 0}]
)
async def test_a_commit_is_not_refused_for_what_its_half_was_allowed(rig, changed):
    """Clients commit without waiting for an answer: what is refused is discarded in the end."""

    def change() -> None:
        limits = rig.context.state.limits
        if "timers_max" in changed:
            rig.context.state.limits = replace(limits, **changed)
        else:
            rig.context.config = replace(rig.context.config, **changed)

    answer = await half_and_commit(rig, change, TIMER_DELAY_SEC="3600")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert (bodies(rig), len(rig.state.halves), len(rig.state.timers)) == ([], 0, 1)
    refused = await send(rig, key="L", TIMER_DELAY_SEC="3600")
    assert refused.code != ResponseCode.SUCCESS, "what comes now is held to the setting"


async def test_a_half_with_an_impossible_delay_is_refused(rig):
    for number, more in enumerate(({"DELAY": "x"}, {"TIMER_DELAY_SEC": "999999999"})):
        answer = await send(rig, key=f"K{number}", TRAN_MSG="true", PGROUP="PG", **more)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert messages(rig, HALF_TOPIC) == []


# Recall ------------------------------------------------------------------------------------------


def test_a_handle_is_rocketmqs():
    handle = recall_handle(topic="T", broker_name="broker-a", deliver_ms=123, uniq_key="K?>1")
    assert base64.urlsafe_b64decode(handle) == b"v1 T broker-a 123 K?>1"
    fields = {"topic": "T", "broker_name": "broker-a", "deliver_ms": 123, "uniq_key": "K?>1"}
    assert parse_recall_handle(handle) == RecallHandle(**fields)
    ours = recall_handle(**fields, queue_offset=7)
    assert base64.urlsafe_b64decode(ours) == b"v1 T broker-a 123 K?>1 7"
    assert parse_recall_handle(ours) == RecallHandle(**fields, queue_offset=7)
    strange = base64.urlsafe_b64encode(b"v1 T broker-a 123 K?>1 -7 x").decode()
    assert parse_recall_handle(strange) == RecallHandle(**fields)


@given(st.text(max_size=60))
def test_any_text_is_a_handle_or_refused(text):
    try:
        handle = parse_recall_handle(text)
    except ValueError:
        return
    assert handle.topic == base64.urlsafe_b64decode(text + "==").decode().split(" ")[1]


async def recall(rig: Rig, timers: Timers, handle: str, topic: str = "T") -> RemotingCommand:
    processor = rig.make(RecallProcessor, rig.tasks, timers)
    fields = {"producerGroup": "PG", "topic": topic, "recallHandle": handle}
    return await rig.ask(processor.handle, RequestCode.RECALL_MESSAGE, fields)


async def test_a_recalled_message_never_comes(rig, tmp_path):
    kept = await send(rig, b"kept", key="K2", TIMER_DELAY_MS="1000")
    gone = await send(rig, b"gone", key="K1", TIMER_DELAY_MS="1000")
    timers = rig.make(Timers)
    handle = gone.ext_fields["recallHandle"]
    assert parse_recall_handle(handle).deliver_ms == START_MS + 1_000
    answer = await recall(rig, timers, handle)
    assert (answer.code, answer.ext_fields["msgId"]) == (ResponseCode.SUCCESS, "K1")
    assert decode_payload(rig.log.entries[-1].payload).commands == [RecallTimerCommand(1)]
    again = await recall(rig, timers, handle)
    assert again.code == ResponseCode.SUCCESS
    assert "does not wait" in again.remark
    await deliver(rig, timers, START_MS + 2_000)
    assert bodies(rig) == [b"kept"]
    assert rig.replay(tmp_path / "replica").timers == rig.state.timers
    late = await recall(rig, timers, kept.ext_fields["recallHandle"])
    assert (late.code, late.remark) == (
        ResponseCode.ILLEGAL_OPERATION,
        "recall failed, timestamp invalid",
    )


async def test_a_recall_reads_no_other_message_of_its_millisecond(rig, monkeypatch):
    """As many may wait for nine o'clock as for a day."""
    sent = [
        await send(rig, b"x", key=f"K{number}", TIMER_DELIVER_MS=str(START_MS + 60_000))
        for number in range(20)
    ]
    timers = rig.make(Timers)
    decoded = Mock(side_effect=decode_record)
    monkeypatch.setattr("broker.delay.recall.decode_record", decoded)
    for number in (19, 3, 3):
        answer = await recall(rig, timers, sent[number].ext_fields["recallHandle"])
        assert answer.code == ResponseCode.SUCCESS
    assert "does not wait" in answer.remark
    assert decoded.call_count == 2
    assert sorted(rig.state.timers.at(START_MS + 60_000)) == sorted({*range(20)} - {3, 19})


async def test_a_recall_among_many_of_one_millisecond_leaves_turns_to_others(rig):
    """By a handle that names no place, as an earlier release gave it."""
    deliver_ms = str(START_MS + 60_000)
    answers = [
        await send(rig, b"x", key=f"K{number}", TIMER_DELIVER_MS=deliver_ms)
        for number in range(1_500)
    ]
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await turns(1)

    beside = asyncio.create_task(others())
    timers = rig.make(Timers)
    assert "recallHandle" in answers[-1].ext_fields
    handle = recall_handle(
        topic="T", broker_name="broker-a", deliver_ms=int(deliver_ms), uniq_key="K1499"
    )
    assert (await recall(rig, timers, handle)).code == ResponseCode.SUCCESS
    assert rounds > 5
    beside.cancel()
    assert decode_payload(rig.log.entries[-1].payload).commands == [RecallTimerCommand(1_499)]
    again = await recall(rig, timers, handle)
    assert "does not wait" in again.remark


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"topic": "U"}, "recall failed, topic not match"),
        ({"broker_name": "broker-b"}, "recall failed, broker service not available"),
        ({"deliver_ms": START_MS}, "recall failed, timestamp invalid"),
        ({"deliver_ms": START_MS + THREE_DAYS_MS}, "recall failed, timestamp invalid"),
    ],
)
async def test_a_handle_that_names_something_else_is_refused(rig, change, remark):
    await send(rig, TIMER_DELAY_MS="1000")
    values = {"topic": "T", "broker_name": "broker-a", "deliver_ms": START_MS + 1_000}
    handle = recall_handle(**(values | {"uniq_key": "K1"} | change))
    answer = await recall(rig, rig.make(Timers), handle)
    assert (answer.code, answer.remark) == (ResponseCode.ILLEGAL_OPERATION, remark)
    assert len(rig.state.timers) == 1


async def test_a_recall_of_nothing(rig):
    timers = rig.make(Timers)
    unknown = await recall(rig, timers, "x", topic="Nowhere")
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    await send(rig, TIMER_DELAY_MS="1000")
    bad = await recall(rig, timers, "???")
    assert (bad.code, bad.remark) == (ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
    rig.log.leader = False
    rig.machine.on_role_change(rig.log.status())
    assert (await recall(rig, timers, "x")).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_what_a_leader_with_a_faster_clock_delivered_is_not_recalled(rig):
    answer = await send(rig, TIMER_DELAY_MS="1000")
    timers = rig.make(Timers)
    await deliver(rig, timers, START_MS + 1_000)
    assert bodies(rig) == [b"x"]
    rig.now_ms = START_MS + 500  # the next leader's clock
    late = await recall(rig, timers, answer.ext_fields["recallHandle"])
    assert (late.code, late.remark) == (
        ResponseCode.ILLEGAL_OPERATION,
        "recall failed, timestamp invalid",
    )


async def test_delivery_and_recall_never_both_happen(rig):
    answer = await send(rig, TIMER_DELAY_MS="1000")
    timers = rig.make(Timers)
    handle = answer.ext_fields["recallHandle"]
    rig.log.auto_commit = False
    rig.now_ms = START_MS + 999
    processor = rig.make(RecallProcessor, rig.tasks, timers)
    fields = {"producerGroup": "PG", "topic": "T", "recallHandle": handle}
    asked = asyncio.create_task(rig.ask(processor.handle, RequestCode.RECALL_MESSAGE, fields))
    await turns(10)
    busy = await recall(rig, timers, handle)
    assert busy.code == ResponseCode.SYSTEM_BUSY
    await deliver(rig, timers, START_MS + 1_000)
    assert len(rig.log.open) == 1, "only the recall"
    rig.log.commit()
    assert (await asked).code == ResponseCode.SUCCESS
    await deliver(rig, timers, START_MS + 2_000)
    assert rig.log.open == []


async def test_an_unknown_outcome_of_a_recall_is_no_failure(rig):
    answer = await send(rig, TIMER_DELAY_MS="1000")
    timers = rig.make(Timers)
    rig.log.auto_commit = False
    processor = rig.make(RecallProcessor, rig.tasks, timers)
    fields = {"topic": "T", "recallHandle": answer.ext_fields["recallHandle"]}
    asked = asyncio.create_task(rig.ask(processor.handle, RequestCode.RECALL_MESSAGE, fields))
    await turns(10)
    rig.log.depose()
    unknown = await asked
    assert unknown.code == ResponseCode.SYSTEM_ERROR
    assert "outcome unknown" in unknown.remark


# The table ---------------------------------------------------------------------------------------


@given(
    st.lists(
        st.one_of(
            st.integers(0, 30),  # a message due then is stored
            st.tuples(st.just("deliver"), st.integers(0, 30)),
            st.tuples(st.just("recall"), st.integers(0, 100)),
            st.just("restart"),
        ),
        max_size=60,
    )
)
def test_a_table_is_a_list_of_what_waits(steps):
    table = TimerTable()
    model: list[tuple[int, int]] = []  # (deliver_ms, queue offset)
    stored = 0
    for step in steps:
        if isinstance(step, int):
            table.add(stored, Timer(step, 100 * stored, 7))
            model.append((step, stored))
            stored += 1
        elif step == "restart":
            rows = [list(row) for row in table.capture()]
            table = TimerTable()
            table.restore(rows)
        else:
            kind, number = step
            if kind == "deliver":
                due = table.due(number, but=(), count_max=3)
                assert due == [offset for at, offset in sorted(model) if at <= number][:3]
                table.deliver(due)
                model = [one for one in model if one[1] not in due]
            elif model:
                at, offset = model.pop(number % len(model))
                assert offset in table.at(at)
                table.recall(offset)
        assert len(table) == len(model)
        oldest = min((offset for _, offset in model), default=None)
        assert table.begin_position == (None if oldest is None else 100 * oldest)


class Compared(int):
    """A queue offset that counts how often such ones are compared."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_a_moment_at_which_many_are_due_is_not_searched_for_each(monkeypatch):
    """All may be due at midnight: to recall them one by one took a replica's loop for minutes."""
    count, moment = 2_000, 10**12
    table = TimerTable()
    for offset in map(Compared, range(count)):
        table.add(offset, Timer(moment, 100 * offset, 7))
    monkeypatch.setattr(Compared, "count", 0)
    for offset in range(count - 1, count // 2, -1):
        table.recall(offset)
    table.deliver(table.due(moment, but=(), count_max=count // 2))
    assert table.at(moment) == (count // 2,)
    assert Compared.count < 10 * count


async def test_a_snapshot_keeps_what_waits(rig):
    for number in range(5):
        await send(rig, key=f"K{number}", TIMER_DELAY_MS=str(100 * (number % 3 + 1)))
    await deliver(rig, rig.make(Timers), START_MS + 100)
    before = rig.state.capture()
    image = decode_image(encode_image(before))
    restored = rig.another_machine(rig.directory / "other")[0].state
    restored.restore(image)
    assert restored.timers == rig.state.timers
    assert len(restored.timers) == 3
    assert b"".join(encode_image(restored.capture())) == b"".join(encode_image(before))


@pytest.mark.parametrize("rows", [[[0, 1, 2]], [[1, 1, 1, 1], [0, 1, 1, 1]], [[0, -1, 1, 1]]])
def test_rows_that_are_no_table(rows):
    with pytest.raises(ValueError, match=r"order|values|whole|missing"):
        TimerTable().restore(rows)
