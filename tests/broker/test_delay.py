"""Delayed messages, messages that consumers send back, and dead letters."""

from __future__ import annotations

import pytest

from broker.delay.delivery import DelayDelivery
from broker.entry.levels import DELAY_LEVEL_MAX, delay_level_of, delay_ms
from broker.entry.payload import UNIT, DeliverCommand, decode_payload
from broker.entry.topics import SCHEDULE_TOPIC, SYS_FLAG_UNIT_SUB
from broker.send.send import SendProcessor
from broker.send.send_back import SendBackProcessor
from campaigns.rig.waiting import turns
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import MessageRecord, decode_record, tags_code
from tests.broker.rig import START_MS, Rig, send_fields

SEND = RequestCode.SEND_MESSAGE_V2
BACK = RequestCode.CONSUMER_SEND_MSG_BACK


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def send(rig: Rig, body: bytes = b"x", **fields: str) -> RemotingCommand:
    return await rig.ask(rig.make(SendProcessor).handle, SEND, send_fields(**fields), body)


def messages(rig: Rig, topic: str, queue_id: int = 0) -> list[MessageRecord]:
    queue = rig.queues.find(topic, queue_id)
    if queue is None:
        return []
    units = UNIT.iter_unpack(queue.read(0, 1_000))
    return [decode_record(rig.context.read_record(position)) for position, _, _ in units]


def test_levels():
    assert [delay_ms(queue) for queue in (0, 3, 4, 17)] == [1_000, 30_000, 60_000, 7_200_000]
    texts = ("0", "1", "18", "99", "-4", "x", "", "9" * 30, "٣")
    assert [delay_level_of(text) for text in texts] == [0, 1, 18, 18, 0, None, None, None, None]


async def test_a_property_that_no_client_of_ours_writes_is_delivered_as_it_came(rig):
    """A value with the sign in it: what can't be written again would end every leader."""
    assert (await send(rig, DELAY="1", strange="a\x01b")).code == ResponseCode.SUCCESS
    rig.now_ms = START_MS + 1_000
    rig.make(DelayDelivery).round()
    await turns(10)
    (record,) = messages(rig, "T")
    assert record.property_map()["strange"] == "a\x01b"


async def test_a_delayed_message_comes_at_its_time_and_never_before(rig, tmp_path):
    answer = await send(rig, b"later", queue=2, DELAY="2", TAGS="red", KEYS="k")
    assert (answer.code, answer.ext_fields["queueId"]) == (ResponseCode.SUCCESS, "2")
    assert rig.state.next_offset("T", 2) == 0
    unit = rig.queues.get(SCHEDULE_TOPIC, 1).read(0, 1)
    assert UNIT.unpack(unit)[2] == START_MS + 5_000, "the unit names the time of delivery"
    delivery = rig.make(DelayDelivery)
    rig.now_ms = START_MS + 4_999
    delivery.round()
    await turns(10)
    assert messages(rig, "T", 2) == []
    rig.now_ms = START_MS + 5_000
    entries = len(rig.log.entries)
    delivery.round()
    delivery.round()
    await turns(10)
    delivery.round()
    await turns(10)
    (record,) = messages(rig, "T", 2)
    properties = record.property_map()
    assert (record.body, properties["UNIQ_KEY"], properties["TAGS"]) == (b"later", "K1", "red")
    assert "DELAY" not in properties
    assert UNIT.unpack(rig.queues.get("T", 2).read(0, 1))[2] == tags_code("red")
    assert len(rig.log.entries) == entries + 1, "message and progress are one entry"
    assert decode_payload(rig.log.entries[-1].payload).commands == [DeliverCommand(1, 0, 1)]
    assert rig.replay(tmp_path / "replica").delay_offsets == {1: 1}


@pytest.mark.parametrize("level", range(1, DELAY_LEVEL_MAX + 1))
async def test_a_message_of_every_level_comes_at_its_time(rig, level):
    assert (await send(rig, DELAY=str(level))).code == ResponseCode.SUCCESS
    delivery = rig.make(DelayDelivery)
    for passed_ms, count in ((delay_ms(level - 1) - 1, 0), (delay_ms(level - 1), 1)):
        rig.now_ms = START_MS + passed_ms
        delivery.round()
        await turns(10)
        assert len(messages(rig, "T")) == count


async def test_a_delivery_that_fails_is_done_again_by_the_next_leader(rig):
    await send(rig, DELAY="1")
    rig.now_ms = START_MS + 1_000
    rig.log.auto_commit = False
    delivery = rig.make(DelayDelivery)
    delivery.round()
    await turns(1)
    assert len(rig.log.open) == 1
    rig.log.depose()
    await turns(10)
    delivery.round()
    await turns(10)
    assert rig.log.open == [], "a follower delivers nothing"
    rig.log.leader = rig.log.auto_commit = True
    rig.log.term = 2
    rig.machine.on_role_change(rig.log.status())
    delivery.round()
    await turns(10)
    assert len(messages(rig, "T")) == 1


async def test_a_retried_delayed_send_is_stored_once(rig):
    first, second = await send(rig, DELAY="1"), await send(rig, DELAY="1")
    assert first.ext_fields == second.ext_fields
    rig.now_ms = START_MS + 1_000
    rig.make(DelayDelivery).round()
    await turns(10)
    third = await send(rig, DELAY="1")
    assert third.ext_fields["msgId"] == first.ext_fields["msgId"]
    assert len(messages(rig, "T")) == len(messages(rig, SCHEDULE_TOPIC)) == 1


async def test_many_due_messages_keep_their_order(rig):
    for number in range(600):
        await send(rig, str(number).encode(), key=f"K{number}", DELAY="1")
    rig.now_ms = START_MS + 1_000
    rig.make(DelayDelivery).round()  # one batch goes on where the one before it was full
    await turns(30)
    assert [record.body for record in messages(rig, "T")] == [b"%d" % n for n in range(600)]
    assert rig.state.delay_offsets[0] == 600


async def test_what_is_not_stored_is_tried_again_by_the_next_round(rig):
    for number in range(300):
        await send(rig, key=f"K{number}", DELAY="1")
    rig.now_ms = START_MS + 1_000
    delivery = rig.make(DelayDelivery)
    rig.log.auto_commit = False
    delivery.round()
    await turns(10)
    assert len(rig.log.open) == 1
    rig.log.depose(ProposalStatus.TRUNCATED)
    rig.log.lead()
    await turns(10)
    assert not rig.log.open, "at once it would be tried for as long as it fails"
    rig.log.auto_commit = True
    delivery.round()
    await turns(30)
    assert len(messages(rig, "T")) == 300


async def test_a_level_that_is_no_number_is_refused(rig):
    assert (await send(rig, DELAY="soon")).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await send(rig, DELAY="0")).code == ResponseCode.SUCCESS
    assert len(messages(rig, "T")) == 1


async def test_a_retry_that_an_old_client_sends_is_no_half(rig):
    """Clients before 4.6.1 leave TRAN_MSG on what they send to be retried."""
    fields = send_fields("%RETRY%G", DELAY="1", TRAN_MSG="true") | {"j": "1", "l": "16"}
    sent = await rig.ask(rig.make(SendProcessor).handle, SEND, fields, b"x")
    assert sent.code == ResponseCode.SUCCESS
    (waiting,) = messages(rig, SCHEDULE_TOPIC)
    assert waiting.sys_flag == 0
    assert not rig.state.halves


async def test_a_retry_needs_no_default_topic(rig):
    """Whoever sends it knows no queue of the topic, which is not there yet."""
    fields = send_fields("%RETRY%G", queue=3) | {"c": "none", "j": "1", "l": "16", "k": "true"}
    sent = await rig.ask(rig.make(SendProcessor).handle, SEND, fields, b"x")
    assert (sent.code, sent.ext_fields["queueId"]) == (ResponseCode.SUCCESS, "0")
    topic = rig.state.topics["%RETRY%G"]
    assert (topic.read_queue_count, topic.sys_flag) == (1, SYS_FLAG_UNIT_SUB)
    beyond = await rig.ask(rig.make(SendProcessor).handle, SEND, fields | {"e": "3"}, b"x")
    assert beyond.code == ResponseCode.INVALID_PARAMETER


async def test_what_is_sent_to_dead_letters_may_wait_too(rig):
    fields = send_fields("%DLQ%G", DELAY="1")
    await rig.ask(rig.make(SendProcessor).handle, SEND, fields, b"x")
    assert len(messages(rig, SCHEDULE_TOPIC)) == 1


async def back(rig: Rig, position: int, **more: str) -> RemotingCommand:
    fields = {"group": "G", "offset": str(position), "delayLevel": "0", "originTopic": "T"}
    return await rig.ask(rig.make(SendBackProcessor).handle, BACK, fields | more)


@pytest.mark.parametrize("level", ["1", "-1"])
async def test_attempts_are_counted_no_further_than_a_record_holds(rig, level):
    most = (1 << 31) - 1
    fields = send_fields() | {"j": str(most)}
    answer = await rig.ask(rig.make(SendProcessor).handle, SEND, fields, b"x")
    position = int(answer.ext_fields["msgId"][16:], 16)
    sent = await back(rig, position, delayLevel=level, maxReconsumeTimes=str(most))
    assert sent.code == ResponseCode.SUCCESS
    (copy,) = messages(rig, "%DLQ%G")
    assert copy.reconsume_times == most


async def test_a_message_sent_back_comes_again_and_then_is_a_dead_letter(rig):
    answer = await send(rig, b"hard", TAGS="red")
    position = int(answer.ext_fields["msgId"][16:], 16)
    assert (await back(rig, position, maxReconsumeTimes="1")).code == ResponseCode.SUCCESS
    (waiting,) = messages(rig, SCHEDULE_TOPIC, 2)
    assert waiting.reconsume_times == 1
    rig.now_ms = START_MS + 10_000
    rig.make(DelayDelivery).round()
    await turns(10)
    (again,) = messages(rig, "%RETRY%G")
    assert (again.body, again.reconsume_times) == (b"hard", 1)
    properties = again.property_map()
    assert properties["RETRY_TOPIC"] == "T"
    assert properties["ORIGIN_MESSAGE_ID"] == answer.ext_fields["msgId"]
    await back(rig, again.physical_offset, maxReconsumeTimes="1")
    (dead,) = messages(rig, "%DLQ%G")
    assert dead.reconsume_times == 2
    assert dead.property_map()["DLQ_ORIGIN_TOPIC"] == "T"
    assert dead.property_map()["ORIGIN_MESSAGE_ID"] == answer.ext_fields["msgId"]
    assert rig.state.topics["%DLQ%G"].write_queue_count == 1


async def test_retries_stay_in_the_queues_that_their_topic_has(rig):
    """The group wants more of them by now; its topic was made before."""
    rig.state.groups["G"] = {"retryQueueNums": 1}
    answer = await send(rig, b"hard")
    position = int(answer.ext_fields["msgId"][16:], 16)
    assert (await back(rig, position)).code == ResponseCode.SUCCESS
    rig.state.groups["G"] = {"retryQueueNums": 8}
    for _ in range(8):
        assert (await back(rig, position)).code == ResponseCode.SUCCESS
    assert rig.state.topics["%RETRY%G"].write_queue_count == 1
    waiting = messages(rig, SCHEDULE_TOPIC, 2)
    assert len(waiting) == 9
    assert {each.property_map()["REAL_QID"] for each in waiting} == {"0"}
    assert {each.property_map()["WAIT"] for each in waiting} == {"false"}


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"offset": "1"}, ResponseCode.SYSTEM_ERROR),
        ({"offset": "-1"}, ResponseCode.SYSTEM_ERROR),
        ({"group": "a/b"}, ResponseCode.INVALID_PARAMETER),
        ({"delayLevel": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_what_was_never_stored_is_not_sent_back(rig, more, code):
    answer = await send(rig)
    position = int(answer.ext_fields["msgId"][16:], 16)
    assert (await back(rig, position, **more)).code == code
    straight = await back(rig, position, delayLevel="-1")
    assert straight.code == ResponseCode.SUCCESS
    assert len(messages(rig, "%DLQ%G")) == 1


async def test_a_retry_that_a_client_sends_itself_obeys_the_same_limit(rig):
    fields = {"topic": "%RETRY%G", "RETRY_TOPIC": "T", "DELAY": "3"}
    handle = rig.make(SendProcessor).handle
    again = send_fields(**fields) | {"j": "2", "l": "2"}
    assert (await rig.ask(handle, SEND, again, b"x")).code == ResponseCode.SUCCESS
    assert len(messages(rig, SCHEDULE_TOPIC, 2)) == 1
    dead = send_fields(**fields) | {"j": "3", "l": "2"}
    assert (await rig.ask(handle, SEND, dead, b"x")).code == ResponseCode.SUCCESS
    assert len(messages(rig, "%DLQ%G")) == 1
