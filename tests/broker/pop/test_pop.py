"""POP through its processors: what is held, by whom, until when, and what comes of it."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json

import pytest

from broker.entry.payload import (
    Command,
    DeleteTopicCommand,
    GroupCommand,
    OffsetCommand,
)
from broker.entry.topics import Topic
from broker.leader.proposer import Proposal
from broker.process.housekeeping import Housekeeper
from campaigns.rig.waiting import turns, until
from raft.log.damage import Damage
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.group_topics import pop_retry_topic
from remoting.protocol.pop_handle import PopHandle, PopHandleError
from remoting.records.message import (
    PROPERTIES_SIZE_MAX,
    decode_records,
)
from tests.broker.pop.pop_rig import POP, PopRig, messages
from tests.broker.rig import FakeConnection, pull_fields, send_fields

RETRY = pop_retry_topic("T", "G")


@pytest.fixture
async def rig(tmp_path):
    rig = PopRig(tmp_path / "store")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def test_what_is_popped_is_invisible_until_it_is_acknowledged(rig, tmp_path):
    await rig.send(b"a", b"b", b"c")
    await rig.send(b"d", queue=1)
    popped = messages(await rig.pop())
    assert sorted(record.body for record, _ in popped) == [b"a", b"b", b"c", b"d"]
    empty = await rig.pop()
    assert empty.code == ResponseCode.POLLING_TIMEOUT
    assert empty.ext_fields["restNum"] == "0"
    assert len(rig.state.pop) == 4
    for record, handle in popped:
        assert await rig.ack(record, handle) == ResponseCode.SUCCESS
        assert await rig.ack(record, handle) == ResponseCode.SUCCESS, "its answer may be lost"
    assert len(rig.state.pop) == 0
    rig.now_ms += 60_000
    assert rig.state.pop.due(rig.now_ms, 10) == []
    replica = rig.replay(tmp_path / "replica")
    assert replica.pop == rig.state.pop
    assert replica.consumer_offsets == {("G", "T", 0): 3, ("G", "T", 1): 1}


@pytest.mark.parametrize("order", ["true", "false"])
async def test_a_pop_takes_nothing_of_a_topic_deleted_meanwhile(rig, order):
    """The group has no offset there, before and after."""
    await rig.send(b"a")
    rig.log.auto_commit = False
    rig.context.proposer.submit(
        Proposal(commands=[DeleteTopicCommand("T")], on_done=lambda _: None, ends_batch=True)
    )
    connection = FakeConnection()
    rig.give(rig.processors.pop.handle, POP, rig.fields(order=order), b"", connection)
    await turns(5)
    rig.log.commit()
    await turns(5)
    assert [answer.code for answer in connection.sent] == [ResponseCode.TOPIC_NOT_EXIST]
    assert len(rig.state.pop) == 0
    assert rig.state.pop.orders.get(("G", "T", 0)) is None
    assert ("G", "T", 0) not in rig.state.consumer_offsets


async def test_nothing_is_revived_of_a_topic_whose_deletion_is_on_its_way(rig):
    await rig.send(b"a")
    await rig.pop()
    rig.now_ms += 10_000
    rig.log.auto_commit = False
    rig.context.proposer.submit(
        Proposal(commands=[DeleteTopicCommand("T")], on_done=lambda _: None, ends_batch=True)
    )
    rig.revive.round()
    await turns(5)
    rig.log.commit()
    assert rig.stored(RETRY) == []
    assert len(rig.state.pop) == 0


async def test_a_client_whose_clock_is_behind_gets_messages(rig):
    await rig.send(b"a")
    answer = await rig.pop(bornTime=str(rig.now_ms - 9_000))
    assert [message.body for message, _ in messages(answer)] == [b"a"]


async def test_a_client_that_does_not_say_when_it_asked_gets_messages(rig):
    await rig.send(b"a")
    fields = rig.fields()
    del fields["bornTime"]  # lua-resty-rocketmq leaves it out
    answer = await rig.ask(rig.processors.pop.handle, POP, fields)
    assert [message.body for message, _ in messages(answer)] == [b"a"]


async def test_what_is_damaged_here_waits_and_holds_up_nothing_else(rig, monkeypatch):
    monkeypatch.setattr("broker.pop.revive._COUNT_MAX", 1)
    await rig.send(b"bad", b"good")
    first = rig.stored("T")[0]
    await rig.pop()
    rig.now_ms += 10_000
    rig.log.damage = Damage(
        first_index=1,
        last_index=1,
        position=first.physical_offset,
        end_position=first.physical_offset + 1,
        chain_before=0,
        chain_after=0,
        path="commitlog/0",
        reason="rot",
    )
    rig.revive.round()
    await rig.let_revive()
    assert [record.body for record in rig.stored(RETRY)] == [b"good"]
    rig.log.damage = None
    rig.now_ms += 1_000
    await rig.let_revive()
    assert [record.body for record in rig.stored(RETRY)] == [b"good", b"bad"]


async def test_what_is_not_acknowledged_comes_again_under_the_first_topic(rig):
    await rig.send(b"a", TAGS="red")
    ((first, _),) = messages(await rig.pop())
    rig.now_ms += 9_999
    rig.revive.round()
    assert (await rig.pop()).code == ResponseCode.POLLING_TIMEOUT
    rig.now_ms += 1
    await rig.let_revive()
    assert len(rig.state.pop) == 0
    ((again, handle),) = messages(await rig.pop())
    assert (again.topic, again.body, again.reconsume_times) == ("T", b"a", 1)
    assert again.property_map()["1ST_POP_TIME"] == str(first.store_timestamp_ms)
    assert PopHandle.parse(handle).retry_flag == "1"
    assert await rig.ack(again, handle, RETRY) == ResponseCode.SUCCESS
    assert len(rig.state.pop) == 0


@pytest.mark.parametrize("cleans", [False, True])
async def test_what_a_deleted_group_has_popped_goes_with_its_offsets_alone(rig, cleans):
    await rig.send(b"a", b"b")
    assert len(messages(await rig.pop())) == 2
    delete = RequestCode.DELETE_SUBSCRIPTIONGROUP
    fields = {"groupName": "G", "cleanOffset": str(cleans).lower()}
    assert (await rig.ask(rig.processors.groups.delete, delete, fields)).code == 0
    assert (("G", "T", 0) in rig.state.consumer_offsets) is not cleans
    rig.now_ms += 10_000
    rig.revive.round()
    await turns(20)
    again = messages(await rig.pop())
    tries = 0 if cleans else 1  # without its offsets it begins anew
    assert [(one.body, one.reconsume_times) for one, _ in again] == [(b"a", tries), (b"b", tries)]


async def test_what_is_committed_behind_a_topics_deletion_is_not_the_next_topics(rig):
    await rig.send(b"a", b"b", b"c")
    rig.log.auto_commit = False
    deletion, commit, pull, mode = (FakeConnection() for _ in range(4))
    of, processors = {"topic": "T"}, rig.processors
    rig.give(processors.admin.delete_topic, 215, of, b"", deletion)
    offset = of | {"consumerGroup": "G", "queueId": "0", "commitOffset": "2"}
    rig.give(processors.offsets.update, 15, offset, b"", commit)
    pulled = pull_fields(offset=0) | {"sysFlag": "5", "commitOffset": "1", "consumerGroup": "H"}
    rig.give(processors.pull.handle, 11, pulled, b"", pull)
    wanted = of | {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 1}
    rig.give(processors.assignment.set_mode, 401, {}, json.dumps(wanted).encode(), mode)
    while not deletion.sent or rig.log.open:
        await until(lambda: rig.log.open)
        rig.log.commit()
        await turns(5)
    refused = [one.sent[0].code for one in (commit, mode)]
    assert refused == [ResponseCode.SYSTEM_BUSY] * 2
    assert deletion.sent[0].code == ResponseCode.SUCCESS
    assert (dict(rig.state.consumer_offsets), dict(rig.state.pop.modes)) == ({}, {})


@pytest.mark.parametrize("chance", [0, 19, 20, 99])
async def test_one_pop_in_five_takes_retries_first(rig, monkeypatch, chance):
    await rig.send(b"a")
    await rig.pop()
    rig.now_ms += 10_000
    await rig.let_revive()
    await rig.send(b"b")
    monkeypatch.setattr(rig.context.random, "randrange", lambda _: chance)
    ((first, _),) = messages(await rig.pop(maxMsgNums="1"))
    assert first.body == (b"a" if chance < 20 else b"b")


async def test_after_the_last_try_it_is_a_dead_letter(rig):
    rig.state.groups["G"] = {"retryMaxTimes": 2}
    await rig.send(b"a")
    for tries in range(3):
        ((record, _),) = messages(await rig.pop())
        assert record.reconsume_times == tries
        rig.now_ms += 10_000
        await rig.let_revive()
    assert (await rig.pop()).code == ResponseCode.POLLING_TIMEOUT
    (dead,) = rig.stored("%DLQ%G")
    properties = dead.property_map()
    assert (dead.body, dead.reconsume_times) == (b"a", 3)
    assert (properties["RETRY_TOPIC"], properties["DLQ_ORIGIN_TOPIC"]) == ("T", "T")


async def test_a_message_that_was_tried_too_often_to_count_ends_nobody(rig):
    most = (1 << 31) - 1
    fields = send_fields(key="odd") | {"j": str(most)}
    assert (await rig.ask(rig.processors.send.handle, 310, fields, b"x")).code == 0
    assert len(messages(await rig.pop())) == 1
    rig.now_ms += 10_000
    await rig.let_revive()
    (record,) = rig.stored("%DLQ%G")
    assert record.reconsume_times == most


async def test_a_changed_time_holds_under_a_new_handle(rig):
    await rig.send(b"a")
    ((record, handle),) = messages(await rig.pop())
    rig.now_ms += 5_000
    changed = await rig.change(record, handle, 60_000)
    assert changed.code == ResponseCode.SUCCESS
    assert int(changed.ext_fields["popTime"]) == rig.now_ms
    stale = await rig.change(record, handle, 1)
    assert stale.code == ResponseCode.NO_MESSAGE
    assert await rig.ack(record, handle) == ResponseCode.SUCCESS
    assert len(rig.state.pop) == 1, "the old handle acknowledges nothing"
    rig.now_ms += 59_999
    assert rig.state.pop.due(rig.now_ms, 10) == []
    rig.now_ms += 1
    assert len(rig.state.pop.due(rig.now_ms, 10)) == 1
    at_once = PopHandle.parse(handle)
    newer = f"{at_once.start_offset} {changed.ext_fields['popTime']} 60000 0 0 broker-a 0 0"
    assert await rig.ack(record, newer) == ResponseCode.SUCCESS
    assert len(rig.state.pop) == 0


async def change_now(rig, record, handle, invisible_ms):
    """Change a message's time, and return the answer with the handle that follows from it."""
    answer = await rig.change(record, handle, invisible_ms)
    assert answer.code == ResponseCode.SUCCESS
    parts = handle.split(" ")
    parts[1:3] = answer.ext_fields["popTime"], answer.ext_fields["invisibleTime"]
    return answer, " ".join(parts)


async def test_an_invented_pop_time_spoils_nobody_elses_handle(rig):
    await rig.send(b"a", b"b")
    (one, handle), (other, others) = messages(await rig.pop())
    parts = handle.split(" ")
    parts[1] = str((1 << 63) - 1)
    assert (await rig.change(one, " ".join(parts), 1_000)).code == ResponseCode.NO_MESSAGE
    answer, newer = await change_now(rig, other, others, 5_000)
    assert int(answer.ext_fields["popTime"]) in {rig.now_ms, rig.now_ms + 1}
    assert await rig.ack(other, newer) == ResponseCode.SUCCESS
    assert rig.state.pop.holding(("G", "T", 0), other.queue_offset) is None


async def test_changes_of_many_messages_in_one_millisecond_stay_at_the_clock(rig):
    await rig.send(*(b"%d" % number for number in range(32)))
    held = messages(await rig.pop())
    for _ in range(5):
        rig.now_ms += 1
        for place, (record, handle) in enumerate(held):
            answer, newer = await change_now(rig, record, handle, 2_000)
            assert answer.ext_fields["popTime"] == str(rig.now_ms)
            assert answer.ext_fields["invisibleTime"] == "2000"
            held[place] = (record, newer)


async def test_of_two_changes_of_one_message_under_way_one_is_carried_out(rig):
    await rig.send(b"a")
    ((record, handle),) = messages(await rig.pop())
    rig.log.auto_commit = False
    connections = [FakeConnection(), FakeConnection()]
    for number, connection in enumerate(connections):
        fields = rig.ack_fields(record, handle, "T") | {"invisibleTime": str(5_000 + number)}
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        rig.give(rig.processors.pop_ack.change, code, fields, b"", connection)
    while not all(connection.sent for connection in connections):
        await until(lambda: rig.log.open)
        rig.log.commit()
        await turns(5)
    codes = [connection.sent[0].code for connection in connections]
    assert codes == [ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE]
    held = rig.state.pop.holding(("G", "T", 0), record.queue_offset)
    assert held.visible_ms == rig.now_ms + 5_000


async def test_a_message_being_acknowledged_is_not_revived(rig):
    await rig.send(b"a")
    ((record, handle),) = messages(await rig.pop())
    rig.now_ms += 10_000
    rig.log.auto_commit = False
    connection = FakeConnection()
    fields = rig.ack_fields(record, handle, "T")
    rig.give(rig.processors.pop_ack.ack, RequestCode.ACK_MESSAGE, fields, b"", connection)
    rig.revive.round()
    await until(lambda: rig.log.open)
    rig.log.commit()
    await until(lambda: connection.sent)
    assert connection.sent[0].code == ResponseCode.SUCCESS
    rig.revive.round()
    assert not rig.log.open
    assert RETRY not in rig.state.topics


async def test_an_acknowledgement_nobody_knows_the_fate_of_says_so(rig):
    await rig.send(b"a")
    ((record, handle),) = messages(await rig.pop())
    rig.log.auto_commit = False
    connection = FakeConnection()
    fields = rig.ack_fields(record, handle, "T")
    rig.give(rig.processors.pop_ack.ack, RequestCode.ACK_MESSAGE, fields, b"", connection)
    await until(lambda: rig.log.open)
    rig.log.depose()
    await until(lambda: connection.sent)
    assert connection.sent[0].code == ResponseCode.SYSTEM_ERROR
    assert "unknown" in connection.sent[0].remark


async def test_pops_beside_each_other_share_no_message(rig):
    await rig.send(*(b"%d" % number for number in range(40)))
    connections = [FakeConnection() for _ in range(5)]
    for connection in connections:
        fields = rig.fields(maxMsgNums="8")
        rig.give(rig.processors.pop.handle, POP, fields, b"", connection)
    await until(lambda: all(connection.sent for connection in connections))
    bodies = [
        record.body for connection in connections for record, _ in messages(connection.sent[0])
    ]
    assert len(bodies) == len(set(bodies)) == 40


async def test_a_held_pop_is_woken_by_what_it_wants(rig):
    await rig.send(b"a", TAGS="blue")
    connection = FakeConnection()
    fields = rig.fields(pollTime="15000", expType="TAG", exp="red")
    rig.give(rig.processors.pop.handle, POP, fields, b"", connection)
    await rig.send(b"b", TAGS="blue")
    await until(lambda: len(rig.context.pop_polling))
    assert connection.sent == []
    info = await rig.ask(
        rig.processors.pop_peek.polling_info, RequestCode.POLLING_INFO, rig.fields()
    )
    assert info.ext_fields["pollingNum"] == "1"
    await rig.send(b"c", TAGS="red")
    await until(lambda: connection.sent)
    assert [record.body for record, _ in messages(connection.sent[0])] == [b"c"]
    assert rig.state.consumer_offsets["G", "T", 0] == 3


@pytest.mark.parametrize("order", ["false", "true"])
async def test_held_pops_hear_of_a_reset(rig, order):
    """One for each queue that has messages for its group again."""
    await rig.send(b"a")
    await rig.send(b"b", queue=1)
    for record, handle in messages(await rig.pop(order=order)):
        await rig.ack(record, handle)
    held = [FakeConnection(), FakeConnection()]
    for connection in held:
        fields = rig.fields(pollTime="15000", order=order, maxMsgNums="1")
        rig.give(rig.processors.pop.handle, POP, fields, b"", connection)
    assert len(rig.context.pop_polling) == 2
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    fields = {"group": "G", "topic": "T", "timestamp": "0", "isForce": "true"}
    answer = await rig.ask(rig.processors.offset_reset.reset, code, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await until(lambda: all(connection.sent for connection in held))
    found = [record.body for connection in held for record, _ in messages(connection.sent[0])]
    assert sorted(found) == [b"a", b"b"]


@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_held_query_takes_no_pop_its_message(rig, order):
    """A notification that waits is woken beside the pop behind it, and isn't counted as a pop."""
    in_order = order == "true"
    await rig.send(b"a", *([b"b"] if in_order else []))
    popped = messages(await rig.pop(order=order, maxMsgNums="1"))
    query, pop, late_query = FakeConnection(), FakeConnection(), FakeConnection()
    fields = rig.fields(pollTime="15000", order=order)
    peek = rig.processors.pop_peek
    rig.give(peek.notification, RequestCode.NOTIFICATION, fields, b"", query)
    rig.give(rig.processors.pop.handle, POP, fields, b"", pop)
    rig.give(peek.notification, RequestCode.NOTIFICATION, fields, b"", late_query)
    assert len(rig.context.pop_polling) == 3
    info = await rig.ask(peek.polling_info, RequestCode.POLLING_INFO, rig.fields())
    assert info.ext_fields["pollingNum"] == "1"
    if in_order:
        await rig.ack(*popped[0])  # which frees the queue
    else:
        await rig.send(b"b")
    await until(lambda: pop.sent)
    assert [record.body for record, _ in messages(pop.sent[0])] == [b"b"]
    assert query.sent[0].ext_fields["hasMsg"] == "true"


@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_held_pop_of_a_client_that_is_gone_keeps_nobody_waiting(rig, order):
    in_order = order == "true"
    await rig.send(b"a", *([b"b"] if in_order else []))
    popped = messages(await rig.pop(order=order, maxMsgNums="1"))
    gone, there = FakeConnection(), FakeConnection()
    for connection in (gone, there):
        fields = rig.fields(pollTime="15000", order=order)
        rig.give(rig.processors.pop.handle, POP, fields, b"", connection)
    gone.closed = True
    if in_order:
        await rig.ack(*popped[0])  # which frees the queue
    else:
        await rig.send(b"b")
    await until(lambda: there.sent)
    assert [record.body for record, _ in messages(there.sent[0])] == [b"b"]
    assert gone.sent == []
    assert len(rig.context.pop_polling) == 0


@pytest.mark.parametrize("order", ["false", "true"])
async def test_what_a_void_pop_of_a_client_that_is_gone_leaves_goes_to_who_waits(rig, order):
    """They found nothing since it was under way with all that there was."""
    await rig.send(b"a")
    rig.log.auto_commit = False
    overtakes = OffsetCommand("G", "T", 0, 0)  # the pop expects none
    rig.context.proposer.submit(Proposal(commands=[overtakes], on_done=lambda _: None))
    gone, there = FakeConnection(), FakeConnection()
    for connection in (gone, there):
        fields = rig.fields(pollTime="15000", order=order)
        rig.give(rig.processors.pop.handle, POP, fields, b"", connection)
        await turns(5)
    assert len(rig.context.pop_polling) == 1
    gone.closed = True
    rig.log.auto_commit = True
    rig.log.commit()
    await turns(5)
    rig.now_ms += 100
    rig.context.pop_polling.expire(rig.passed_ms)
    await until(lambda: there.sent)
    assert [record.body for record, _ in messages(there.sent[0])] == [b"a"]


async def test_a_held_pop_ends_with_its_time_or_its_leader(rig):
    await rig.send(b"a")
    await rig.pop()
    first, second = FakeConnection(), FakeConnection()
    rig.give(rig.processors.pop.handle, POP, rig.fields(pollTime="5000"), b"", first)
    rig.give(rig.processors.pop.handle, POP, rig.fields(pollTime="9000"), b"", second)
    rig.now_ms += 5_000
    rig.context.pop_polling.expire(rig.passed_ms)
    assert [answer.code for answer in first.sent] == [ResponseCode.POLLING_TIMEOUT]
    rig.log.depose()
    rig.context.pop_polling.wake_all()
    assert [answer.code for answer in second.sent] == [ResponseCode.SERVICE_NOT_AVAILABLE]
    assert len(rig.context.pop_polling) == 0


def topic_of(**more: int) -> Command:
    return Topic(name="T", **{"read_queue_count": 4, "write_queue_count": 4} | more).command()


@pytest.mark.parametrize("wake", ["arrival", "deadline"])
@pytest.mark.parametrize("order", ["false", "true"])
@pytest.mark.parametrize(
    ("queue_id", "change", "code"),
    [
        (-1, GroupCommand("G", {"consumeEnable": False}), ResponseCode.NO_PERMISSION),
        (-1, topic_of(perm=2), ResponseCode.NO_PERMISSION),
        (3, topic_of(read_queue_count=3), ResponseCode.INVALID_PARAMETER),
        (-1, DeleteTopicCommand("T"), ResponseCode.TOPIC_NOT_EXIST),
        (-1, None, ResponseCode.NO_PERMISSION),  # of the broker
    ],
)
async def test_a_held_pop_gets_what_its_group_may_have_when_it_is_answered(
    rig, queue_id, change, code, order, wake
):
    """Not what it might when it came; as one that comes now."""
    await rig.send(b"before", queue=3)
    for record, handle in messages(await rig.pop(order=order)):
        assert await rig.ack(record, handle) == ResponseCode.SUCCESS
    held = FakeConnection()
    fields = rig.fields(pollTime="15000", order=order, queueId=str(queue_id))
    rig.give(rig.processors.pop.handle, POP, fields, b"", held)
    assert held.sent == []
    if change is None:
        rig.context.config = dataclasses.replace(rig.config, broker_permission=2)
    else:
        rig.context.proposer.submit(Proposal(commands=[change], on_done=lambda _: None))
    await turns(5)
    if wake == "arrival" and not isinstance(change, DeleteTopicCommand):
        await rig.send(b"after", queue=3)
    else:
        rig.now_ms += 15_000
        rig.context.pop_polling.expire(rig.passed_ms)
    await until(lambda: held.sent)
    assert [answer.code for answer in held.sent] == [code]
    assert (await rig.pop(order=order, queueId=str(queue_id))).code == code
    assert len(rig.state.pop) == len(rig.state.pop.orders) == 0


@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_held_pop_finds_what_comes_in_a_queue_that_is_new(rig, order):
    await rig.send(b"before")
    for record, handle in messages(await rig.pop(order=order)):
        assert await rig.ack(record, handle) == ResponseCode.SUCCESS
    held = FakeConnection()
    rig.give(rig.processors.pop.handle, POP, rig.fields(pollTime="15000", order=order), b"", held)
    change = topic_of(read_queue_count=8, write_queue_count=8)
    rig.context.proposer.submit(Proposal(commands=[change], on_done=lambda _: None))
    await rig.send(b"after", queue=6)
    await until(lambda: held.sent)
    assert [record.body for record, _ in messages(held.sent[0])] == [b"after"]


async def test_in_order_a_queue_waits_for_its_messages(rig):
    await rig.send(b"a", b"b", b"c")
    order = {"order": "true", "maxMsgNums": "2", "attemptId": "x"}
    answer = await rig.pop(**order)
    assert answer.ext_fields["reviveQid"] == "999"
    assert answer.ext_fields["orderCountInfo"] == "0 0 0"
    popped = messages(answer)
    assert [record.body for record, _ in popped] == [b"a", b"b"]
    blocked = await rig.pop(**order | {"attemptId": "y"})
    assert blocked.code == ResponseCode.POLLING_TIMEOUT
    again = await rig.pop(**order)
    assert [r.body for r, _ in messages(again)] == [b"a", b"b"], "one whose answer was lost"
    popped = messages(again)
    assert rig.state.consumer_offsets["G", "T", 0] == 0
    assert await rig.ack(*popped[1]) == ResponseCode.SUCCESS
    assert rig.state.consumer_offsets["G", "T", 0] == 0, "the first is missing"
    waiting = FakeConnection()
    rig.give(
        rig.processors.pop.handle, POP, rig.fields(order="true", pollTime="9000"), b"", waiting
    )
    assert await rig.ack(*popped[0]) == ResponseCode.SUCCESS
    await until(lambda: waiting.sent)
    assert [r.body for r, _ in messages(waiting.sent[0])] == [b"c"]
    assert rig.state.consumer_offsets["G", "T", 0] == 2


async def test_in_order_what_comes_again_is_counted(rig):
    await rig.send(b"a", b"b")
    ((_, handle), (second, second_handle)) = messages(await rig.pop(order="true"))
    assert handle.split(" ")[3] == "999"
    assert await rig.ack(second, second_handle) == ResponseCode.SUCCESS
    rig.now_ms += 9_999
    waiting = FakeConnection()
    rig.give(
        rig.processors.pop.handle, POP, rig.fields(order="true", pollTime="9000"), b"", waiting
    )
    rig.now_ms += 1
    rig.context.pop_polling.expire(rig.passed_ms)
    await until(lambda: waiting.sent)
    found = messages(waiting.sent[0])
    assert [record.body for record, _ in found] == [b"a", b"b"]
    assert waiting.sent[0].ext_fields["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1;0 0 1"
    changed = await rig.change(*found[0], 60_000)
    assert changed.ext_fields["invisibleTime"] == "60000"
    rig.now_ms += 59_000
    assert (await rig.pop(order="true")).code == ResponseCode.POLLING_TIMEOUT
    assert rig.stored(RETRY) == []


@pytest.mark.parametrize("ahead", [1, 2, 3])
async def test_in_order_an_acknowledgement_takes_no_offset_back(rig, ahead):
    """A tool has moved the group ahead while a member is at work with what it popped before."""
    await rig.send(b"a", b"b", b"c", b"d")
    popped = messages(await rig.pop(order="true", maxMsgNums="2"))
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": str(ahead)}
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    assert (await rig.ask(rig.processors.offsets.update, code, fields)).code == 0
    for record, handle in reversed(popped):
        assert await rig.ack(record, handle) == ResponseCode.SUCCESS
        assert rig.state.consumer_offsets["G", "T", 0] >= ahead
    start = max(2, ahead)
    assert rig.state.consumer_offsets["G", "T", 0] == start
    rest = messages(await rig.pop(order="true"))
    assert [record.body for record, _ in rest] == [b"a", b"b", b"c", b"d"][start:]


async def eventually(rig, done) -> None:
    async with asyncio.timeout(5):
        while not done():
            rig.now_ms += 10
            rig.context.pop_polling.expire(rig.passed_ms)
            await turns(1)


async def test_in_order_a_queue_waits_for_a_postponement_under_way(rig):
    """Its holder is told that the message comes back later: nobody may have it before."""
    await rig.send(b"a")
    ((first, handle),) = messages(await rig.pop(order="true"))
    rig.log.auto_commit = False
    changing, waiting = FakeConnection(), FakeConnection()
    fields = rig.ack_fields(first, handle, "T") | {"invisibleTime": "60000"}
    rig.give(
        rig.processors.pop_ack.change,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        fields,
        b"",
        changing,
    )
    rig.now_ms += 10_000  # the first time is over
    rig.give(rig.processors.pop.handle, POP, rig.fields(order="true", pollTime="900"), b"", waiting)
    await turns(5)
    rig.log.auto_commit = True
    rig.log.commit()
    await eventually(rig, lambda: changing.sent and waiting.sent)
    assert changing.sent[0].code == ResponseCode.SUCCESS
    assert waiting.sent[0].code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.parametrize("batch", [False, True])
async def test_in_order_a_queue_waits_for_an_acknowledgement_under_way(rig, batch):
    await rig.send(b"a", b"b")
    ((first, handle),) = messages(await rig.pop(order="true", maxMsgNums="1"))
    rig.log.auto_commit = False
    done, waiting = FakeConnection(), FakeConnection()
    if batch:
        row = {"c": "G", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 999, "it": 10_000}
        row |= {"pt": int(handle.split(" ")[1]), "b": base64.b64encode(b"\1").decode()}
        body = json.dumps({"acks": [row]}).encode()
        rig.give(rig.processors.pop_ack.batch_ack, RequestCode.BATCH_ACK_MESSAGE, {}, body, done)
    else:
        fields = rig.ack_fields(first, handle, "T")
        rig.give(rig.processors.pop_ack.ack, RequestCode.ACK_MESSAGE, fields, b"", done)
    rig.now_ms += 10_000
    rig.give(rig.processors.pop.handle, POP, rig.fields(order="true", pollTime="900"), b"", waiting)
    await turns(5)
    rig.log.auto_commit = True
    rig.log.commit()
    await eventually(rig, lambda: done.sent and waiting.sent)
    assert [record.body for record, _ in messages(waiting.sent[0])] == [b"b"]


async def test_batches_are_acknowledged_by_their_bits(rig):
    await rig.send(b"a", b"b", b"c")
    answer = await rig.pop()
    row = {"c": "G", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "it": 10_000}
    row |= {"pt": int(answer.ext_fields["popTime"]), "b": base64.b64encode(bytes([0b101])).decode()}
    body = json.dumps({"brokerName": "broker-a", "acks": [row]}).encode()
    batch = rig.processors.pop_ack.batch_ack
    assert (await rig.ask(batch, RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == 0
    assert rig.state.pop.holding(("G", "T", 0), 1) is not None
    assert len(rig.state.pop) == 1
    long = {"consumerGroup": "G", "topic": "T", "retry": "0", "startOffset": 0, "queueId": 0}
    long |= {"reviveQueueId": 0, "popTime": row["pt"], "bitSet": "Ag=="}
    body = json.dumps({"acks": [long]}).encode()
    assert (await rig.ask(batch, RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == 0
    assert len(rig.state.pop) == 0
    empty = await rig.ask(batch, RequestCode.BATCH_ACK_MESSAGE, {}, b'{"acks":[]}')
    assert empty.code == ResponseCode.NO_MESSAGE
    for bad in (b"", b'{"acks":[{"c":1}]}', json.dumps({"acks": [row | {"b": "!"}]}).encode()):
        refused = await rig.ask(batch, RequestCode.BATCH_ACK_MESSAGE, {}, bad)
        assert refused.code == ResponseCode.INVALID_PARAMETER


async def test_a_pop_at_the_bound_of_its_queue_gets_what_acknowledgements_make_room_for(
    rig, monkeypatch
):
    monkeypatch.setattr("broker.pop.pop._HELD_PER_QUEUE_MAX", 2)
    await rig.send(b"a", b"b", b"c")
    held = messages(await rig.pop(maxMsgNums="2"))
    waiting = FakeConnection()
    rig.give(rig.processors.pop.handle, POP, rig.fields(pollTime="20000"), b"", waiting)
    for message, handle in held:
        assert await rig.ack(message, handle) == ResponseCode.SUCCESS
    assert not waiting.sent
    rig.now_ms += 1_000
    rig.context.pop_polling.expire(rig.context.monotonic_ms())
    await until(lambda: waiting.sent)
    assert [record.body for record, _ in messages(waiting.sent[0])] == [b"c"]


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({"_HELD_MAX": 2, "_HELD_PER_GROUP_MAX": 9}, "2 popped messages are held on this broker"),
        ({"_HELD_MAX": 9, "_HELD_PER_GROUP_MAX": 2}, "2 popped messages are held by G"),
    ],
)
async def test_a_pop_beyond_a_bound_of_the_broker_is_told_so(rig, monkeypatch, bounds, says):
    for name, bound in bounds.items():
        monkeypatch.setattr(f"broker.pop.pop.{name}", bound)
    await rig.send(b"a", b"b", b"c")
    ((first, handle), _) = messages(await rig.pop(maxMsgNums="2"))
    refused = await rig.pop(pollTime="20000")
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert says in refused.remark
    other = await rig.pop(consumerGroup="OTHER")
    is_everybodys = bounds["_HELD_MAX"] == 2
    assert other.code == (ResponseCode.SYSTEM_BUSY if is_everybodys else ResponseCode.SUCCESS)
    assert await rig.ack(first, handle) == ResponseCode.SUCCESS
    assert [record.body for record, _ in messages(await rig.pop())] == [b"c"]
    nothing = await rig.pop(consumerGroup="G", topic="T", queueId="3")
    assert nothing.code == ResponseCode.POLLING_TIMEOUT, "where nothing is, nothing is refused"


async def test_a_group_whose_offsets_find_no_room_is_told_so(rig):
    await rig.send(b"a")
    rig.state.limits = dataclasses.replace(rig.state.limits, consumer_offsets_max=0)
    refused = await rig.pop()
    assert (refused.code, refused.remark) == (
        ResponseCode.SYSTEM_BUSY,
        "this broker has its 0 consumer offsets",
    )


async def test_retention_stays_behind_what_is_held(rig):
    housekeeper = rig.make(Housekeeper, rig.tasks, None)
    await rig.send(b"a", b"b")
    ((first, handle), (second, second_handle)) = messages(await rig.pop())
    assert housekeeper._delay_position() == first.physical_offset
    assert await rig.ack(first, handle) == ResponseCode.SUCCESS
    assert housekeeper._delay_position() == second.physical_offset
    assert await rig.ack(second, second_handle) == ResponseCode.SUCCESS
    assert housekeeper._delay_position() is None
    await rig.send(b"c")
    ((third, handle),) = messages(await rig.pop(order="true"))
    assert housekeeper._delay_position() == third.physical_offset


@pytest.mark.parametrize("changed_ms", [None, 0, 60_000])
@pytest.mark.parametrize("acknowledged", [0, 1])
@pytest.mark.parametrize("order", ["false", "true"])
async def test_what_its_consumer_abandoned_holds_back_retention_no_longer_than_its_time(
    rig, tmp_path, order, acknowledged, changed_ms
):
    """Nobody of the group comes again: its messages are a backlog as any other, in order too."""
    housekeeper = rig.make(Housekeeper, rig.tasks, None)
    await rig.send(b"a", b"b", b"c")
    popped = messages(await rig.pop(order=order))
    for record, handle in popped[:acknowledged]:
        assert await rig.ack(record, handle) == ResponseCode.SUCCESS
    if changed_ms is not None:
        changed = await rig.change(*popped[acknowledged], changed_ms)
        assert changed.code == ResponseCode.SUCCESS
    rig.now_ms += max(10_000, changed_ms or 0) - 1
    assert housekeeper._delay_position() == popped[acknowledged][0].physical_offset
    rig.now_ms += 1
    if order == "false":
        await rig.let_revive()
    assert housekeeper._delay_position() is None
    for replica in (rig.state, rig.replay(tmp_path / "replica")):
        assert list(replica.pop.oldest(rig.now_ms)) == []
    if order == "true":  # whoever comes after all gets them all the same
        again = messages(await rig.pop(order=order))
        assert [record.body for record, _ in again] == [b"a", b"b", b"c"][acknowledged:]
        assert housekeeper._delay_position() == again[0][0].physical_offset


async def test_where_a_new_group_begins(rig):
    await rig.send(b"a", b"b", b"c")
    rig.context.config = dataclasses.replace(rig.config, in_memory_size_bytes_max=1)
    assert [r.body for r, _ in messages(await rig.pop(initMode="1"))] == [b"c"]
    fields = {"consumerGroup": "H"}
    assert len(messages(await rig.pop(**fields))) == 3


async def test_looking_takes_nothing(rig):
    await rig.send(b"a", b"b")
    peek = rig.processors.pop_peek
    seen = await rig.ask(peek.peek, RequestCode.PEEK_MESSAGE, rig.fields(maxMsgNums="1"))
    assert [record.body for record in decode_records(seen.body)] == [b"a"]
    assert seen.ext_fields["restNum"] == "2", "what is shown is left there"
    told = await rig.ask(peek.notification, RequestCode.NOTIFICATION, rig.fields())
    assert told.ext_fields["hasMsg"] == "true"
    assert len(messages(await rig.pop())) == 2
    told = await rig.ask(peek.notification, RequestCode.NOTIFICATION, rig.fields())
    assert told.ext_fields["hasMsg"] == "false"
    waiting = FakeConnection()
    fields = rig.fields(pollTime="9000")
    rig.give(peek.notification, RequestCode.NOTIFICATION, fields, b"", waiting)
    await rig.send(b"c")
    assert waiting.sent[0].ext_fields["hasMsg"] == "true"


async def test_where_retention_has_passed_the_group_nothing_is_said_to_be_there(rig):
    """A group that was away for longer goes on at the queue's end, and is told of what comes."""
    await rig.send(b"a", b"b", b"c")
    ((record, handle),) = messages(await rig.pop(maxMsgNums="1"))
    assert await rig.ack(record, handle) == ResponseCode.SUCCESS
    rig.log.snapshot_position = None
    await rig.log.retain_from(len(rig.log.data))
    peek = rig.processors.pop_peek
    told = await rig.ask(peek.notification, RequestCode.NOTIFICATION, rig.fields())
    assert told.ext_fields["hasMsg"] == "false"
    assert (await rig.pop()).code == ResponseCode.POLLING_TIMEOUT
    shown = await rig.ask(peek.peek, RequestCode.PEEK_MESSAGE, rig.fields())
    assert shown.ext_fields["restNum"] == "0"
    await rig.send(b"d")
    told = await rig.ask(peek.notification, RequestCode.NOTIFICATION, rig.fields())
    assert told.ext_fields["hasMsg"] == "true"
    assert [record.body for record, _ in messages(await rig.pop())] == [b"d"]


@pytest.mark.parametrize("permission", [2, 4, 6])
async def test_from_a_broker_that_is_drained_nobody_consumes(rig, permission):
    """brokerPermission holds for each way to read what is next, as for pulls."""
    await rig.send(b"a", b"b")
    ((first, handle), _) = messages(await rig.pop())
    rig.context.config = dataclasses.replace(rig.config, broker_permission=permission)
    peek, group = rig.processors.pop_peek, {"consumerGroup": "H"}  # which begins at the first
    answers = {
        "pulling": await rig.ask(rig.processors.pull.handle, 11, pull_fields()),
        "pop": await rig.pop(consumerGroup="I"),
        "peeking": await rig.ask(peek.peek, RequestCode.PEEK_MESSAGE, rig.fields(**group)),
        "looking": await rig.ask(peek.notification, RequestCode.NOTIFICATION, rig.fields(**group)),
        "counting": await rig.ask(peek.polling_info, RequestCode.POLLING_INFO, rig.fields(**group)),
    }
    code = ResponseCode.SUCCESS if permission & 4 else ResponseCode.NO_PERMISSION
    assert {what: answer.code for what, answer in answers.items()} == dict.fromkeys(answers, code)
    if not permission & 4:
        for what in ("pulling", "pop", "peeking"):
            assert f"] {what} message is forbidden" in answers[what].remark
    assert await rig.ack(first, handle) == ResponseCode.SUCCESS, "what was given may end"


async def test_who_may_not_consume_may_not_look(rig):
    await rig.send(b"a")
    peek = rig.processors.pop_peek
    body = b'{"groupName":"G","consumeEnable":false}'
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await rig.ask(rig.processors.groups.update, code, {}, body)).code == 0
    for handler, asked in (
        (peek.peek, RequestCode.PEEK_MESSAGE),
        (peek.notification, RequestCode.NOTIFICATION),
        (peek.polling_info, RequestCode.POLLING_INFO),
    ):
        refused = await rig.ask(handler, asked, rig.fields())
        assert refused.code == ResponseCode.NO_PERMISSION
        refused = await rig.ask(handler, asked, rig.fields(topic="none"))
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"maxMsgNums": "33"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "99"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-2"}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "a/b"}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "g" * 247, "topic": "T"}, ResponseCode.INVALID_PARAMETER),
        ({"expType": "SQL92", "exp": "a >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_bad_pops_are_refused(rig, fields, code):
    await rig.send(b"a")
    refused = await rig.pop(**fields)
    assert refused.code == code
    assert refused.remark
    assert rig.state.consumer_offsets == {}


@pytest.mark.parametrize("text", ["", "1 2 3", "a b c d e f g", "1 2 3 4 0 b 9" + "9" * 30])
def test_what_is_no_handle_is_refused(text):
    with pytest.raises(PopHandleError):
        PopHandle.parse_for(text, 0)


def test_a_requests_offset_stands_in_for_a_handles_last_part():
    short = PopHandle.parse_for("0 1 60000 2 0 broker-a 3", 7)
    assert (short.revive_queue, short.queue_id, short.offset) == (2, 3, 7)
    assert PopHandle.parse_for("0 1 60000 2 0 broker-a 3 7", 7).offset == 7


async def test_a_message_without_room_for_a_handle_holds_up_nobody(rig):
    full = "x" * (PROPERTIES_SIZE_MAX - 150)
    await rig.send(b"full", USER=full)
    assert len(messages(await rig.pop())) == 1
    rig.now_ms += 11_000
    await rig.let_revive()
    assert [record.body for record in rig.stored("%DLQ%G")] == [b"full"]
    assert rig.stored(RETRY) == []

    command = Topic(name=RETRY, read_queue_count=1, write_queue_count=1).command()
    rig.context.proposer.submit(Proposal(commands=[command], on_done=lambda _: None))
    fields = send_fields(topic=RETRY, key="by-hand", USER=full)  # as anybody may write one
    answer = await rig.ask(rig.processors.send.handle, 310, fields, b"by hand")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await rig.send(b"after")
    answers = [await rig.pop(), await rig.pop()]
    popped = [record.body for answer in answers for record in decode_records(answer.body)]
    assert sorted(popped) == [b"after", b"by hand"], [answer.remark for answer in answers]
