"""Deleted topics: what they held is gone, their queues' offsets never come again (promise G3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.admin.admin import AdminProcessor
from broker.admin.maintenance import MaintenanceProcessor
from broker.entry.payload import UNIT, DeleteTopicCommand, DiscardCommand, OffsetCommand
from broker.leader.proposer import Proposal
from broker.pull.offsets import OffsetProcessor
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.consume_queues import ConsumeQueues
from broker.request.deleted_topics import RetryFilter, first_of_living_topic
from broker.send.send import SendProcessor
from broker.state.state import BrokerState
from broker.transaction.check_back import CheckBack
from broker.transaction.end_transaction import EndTransactionProcessor
from broker.transaction.records import discarded_record
from campaigns.rig.waiting import turns, until
from client.connection.answers import error_of
from client.errors import ContraryDecisionError
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records.message import decode_record
from remoting.records.message_id import offset_msg_id
from remoting.records.property_names import PropertyName
from tests.broker.rig import FakeConnection, Rig, send_fields
from tests.broker.transactions import end, half


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path / "n0")
    yield rig
    await rig.tasks.stop()
    rig.queues.close()


async def send(rig: Rig, key: str, topic: str = "T") -> int:
    """The offset where it was stored, in queue 0."""
    answer = await rig.ask(
        rig.make(SendProcessor).handle, 310, send_fields(topic, key=key), b"body"
    )
    assert answer.code == 0, answer.remark
    return int(answer.ext_fields["queueOffset"])


async def delete(rig: Rig, topic: str = "T") -> None:
    done: asyncio.Future[ProposalStatus | None] = asyncio.get_running_loop().create_future()
    rig.context.proposer.submit(
        Proposal(commands=[DeleteTopicCommand(topic)], on_done=done.set_result, ends_batch=True)
    )
    assert await done is ProposalStatus.COMMITTED


def bounds(rig: Rig, topic: str = "T") -> tuple[int, int]:
    queue = rig.queues.get(topic, 0)
    return queue.min_offset, queue.next_offset


def reopened(rig: Rig, directory: Path, image: bytes, behind: int) -> tuple[BrokerState, list[int]]:
    """The next life at a snapshot: entries up to `behind` are indexed, those after it applied."""
    machine, queues = rig.another_machine(directory)
    machine.prepare_restore(behind, [image])()
    if machine.needs_indexing:
        machine.index_only(rig.log.entries[:behind])
    machine.apply(rig.log.entries[behind:])
    queue = queues.get("T", 0)
    found = [queue.min_offset, queue.next_offset]
    assert len(queue.read(queue.min_offset, 1_000)) == 20 * (queue.next_offset - queue.min_offset)
    queues.close()
    return machine.state, found


async def test_a_topic_made_anew_goes_on_where_the_old_one_ended(rig: Rig, tmp_path: Path) -> None:
    assert [await send(rig, f"a{n}") for n in range(3)] == [0, 1, 2]
    await send(rig, "u", "U")
    files = rig.directory / "consumequeue" / "T" / "0"
    assert list(files.iterdir())
    await delete(rig)
    assert "T" not in rig.state.topics
    assert not list(files.iterdir()), "the queue's files are gone"
    assert bounds(rig) == (3, 3)
    assert bounds(rig, "U") == (0, 1), "another topic is left alone"
    assert [await send(rig, f"b{n}") for n in range(2)] == [3, 4]
    assert bounds(rig) == (3, 5)
    again = rig.replay(tmp_path / "again")
    assert vars_of(again) == vars_of(rig.state)


async def test_offsets_and_resets_of_the_topic_go(rig: Rig) -> None:
    await send(rig, "a")
    await send(rig, "u", "U")
    for topic in ("T", "U"):
        rig.state.resets.set("G", topic, 0, 0)
    done: asyncio.Future[ProposalStatus | None] = asyncio.get_running_loop().create_future()
    offsets = [OffsetCommand("H", topic, 0, 1) for topic in ("T", "U")]
    rig.context.proposer.submit(Proposal(commands=[*offsets], on_done=done.set_result))
    await done
    await delete(rig)
    assert rig.state.consumer_offsets == {("H", "U", 0): 1}
    assert rig.state.resets.get("G", "T", 0) is None
    assert rig.state.resets.get("G", "U", 0) == 0


async def test_what_is_sent_after_the_deletion_is_kept(rig: Rig) -> None:
    """Both are asked for in one turn: they would fit one entry."""
    await send(rig, "a")
    connection = FakeConnection()
    handler = rig.make(SendProcessor).handle
    rig.give(handler, 310, send_fields(key="before"), b"x", connection)
    deleting = asyncio.ensure_future(delete(rig))
    await turns(1)
    assert rig.context.proposer.topic("T") is None, "it is as good as deleted"
    rig.give(handler, 310, send_fields(key="after"), b"x", connection)
    assert rig.context.proposer.topic("T") is not None, "and made anew"
    await deleting
    await until(lambda: len(connection.sent) >= 2)
    assert [answer.code for answer in connection.sent] == [0, 0]
    assert bounds(rig) == (2, 3)
    assert "T" in rig.state.topics


async def test_no_deletion_is_done_before_it_is_committed(rig: Rig) -> None:
    """The second one finds nothing to delete but what the first one is about to."""
    await send(rig, "a")
    admin = rig.make(AdminProcessor)
    rig.log.auto_commit = False
    connection = FakeConnection()
    for _ in range(2):
        rig.give(admin.delete_topic, 215, {"topic": "T"}, b"", connection)
    await turns(10)
    assert connection.sent == []
    rig.log.depose()
    await turns(10)
    assert [answer.code for answer in connection.sent] == [1, 1], "nobody knows"


async def test_no_topic_is_there_before_it_is_committed(rig: Rig) -> None:
    admin = rig.make(AdminProcessor)
    rig.log.auto_commit = False
    connection = FakeConnection()
    fields = {"topic": "N", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    for _ in range(2):
        rig.give(admin.update_topic, 17, fields, b"", connection)
    await turns(10)
    assert connection.sent == []


@pytest.mark.parametrize("files", ["kept", "lost"])
@pytest.mark.parametrize("snapshot", [3, 4, 5])
async def test_a_restart_shows_nothing_below_the_floor(
    rig: Rig, tmp_path: Path, files: str, snapshot: int
) -> None:
    """The snapshot is older than the deletion (3), of it (4), or younger (5)."""
    images: list[bytes] = []

    def capture() -> None:
        images.append(b"".join(rig.state.capture().encode()))

    capture()
    for number in range(3):
        await send(rig, f"a{number}")
        capture()
    await delete(rig)
    capture()
    await send(rig, "b")
    capture()
    directory = rig.directory if files == "kept" else tmp_path / "n1"
    rig.queues.close()
    state, found = reopened(rig, directory, images[snapshot], snapshot)
    assert found == [3, 4]
    assert vars_of(state) == vars_of(rig.state)


async def test_deletions_are_noted_together_before_anything_is_stored_behind_them(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note names all queues of all deleted topics, and these are thousands."""
    for number in range(4):
        await send(rig, f"a{number}", f"T{number}")
    for number in range(3):
        await delete(rig, f"T{number}")
    await send(rig, "b", "T0")
    for number in (3, 0):
        await delete(rig, f"T{number}")
    machine, queues = rig.another_machine(tmp_path / "n1")
    events: list[str] = []
    write_begins, append = ConsumeQueues._write_begins, ConsumeQueue.append

    def noted(queues: ConsumeQueues) -> None:
        write_begins(queues)
        begins = sorted((topic, begin) for (topic, _), begin in queues._read_begins().items())
        events.append(f"noted {begins}")

    def appended(queue: ConsumeQueue, first_offset: int, units: bytes) -> None:
        append(queue, first_offset, units)
        events.append(f"appended at {first_offset}")

    monkeypatch.setattr(ConsumeQueues, "_write_begins", noted)
    monkeypatch.setattr(ConsumeQueue, "append", appended)
    machine.apply(rig.log.entries)
    assert events == [
        *["appended at 0"] * 4,
        "noted [('T0', 1), ('T1', 1), ('T2', 1)]",
        "appended at 1",
        "noted [('T0', 2), ('T1', 1), ('T2', 1), ('T3', 1)]",
    ]
    queues.close()


def vars_of(state: BrokerState) -> dict[str, object]:
    own = ("topics", "groups", "next_offsets", "consumer_offsets", "resets", "floors")
    return {name: getattr(state, name) for name in own}


async def test_a_group_misses_nothing_of_a_topic_made_anew(rig: Rig) -> None:
    """A new group takes an answer of 22 for "begin at the end", behind what was sent meanwhile."""
    for key in ("a", "b", "c"):
        await send(rig, key)
    await delete(rig)
    offsets = rig.make(OffsetProcessor, rig.tasks)
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    for at in (3, 4):
        assert await send(rig, f"new{at}") == at
        told = await rig.ask(offsets.query, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        assert (told.code, told.ext_fields.get("offset")) == (ResponseCode.SUCCESS, "3")
    queue = rig.queues.get("T", 0)
    queue.trim(UNIT.unpack(queue.read(4, 1))[0])  # now retention has taken some of it
    told = await rig.ask(offsets.query, RequestCode.QUERY_CONSUMER_OFFSET, fields)
    assert told.code == ResponseCode.QUERY_NOT_FOUND


# What waits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["8", "12"])
@pytest.mark.parametrize("made_anew", [True, False])
async def test_a_half_of_a_deleted_topic_is_rolled_back(
    rig: Rig, decision: str, made_anew: bool
) -> None:
    await send(rig, "a")
    fields = await half(rig, queue=0)
    await delete(rig)
    if made_anew:
        await send(rig, "b")
    for _ in range(2):
        answer = await end(rig, fields, decision)
        if decision == "8":
            told = error_of(answer.code, answer.remark, "n0")
            assert isinstance(told, ContraryDecisionError)
            assert told.definite
            assert "transaction already rolled back" in (answer.remark or "")
        else:
            assert answer.code == ResponseCode.SUCCESS
    assert len(rig.state.halves) == 0
    assert bounds(rig) == ((1, 2) if made_anew else (1, 1))


async def test_nobody_is_asked_about_a_half_of_a_deleted_topic(rig: Rig) -> None:
    await half(rig, queue=0)
    await delete(rig)
    await send(rig, "b")
    producer = FakeConnection()
    rig.context.clients.producer_seen("PG", "c", producer, rig.now_ms)  # type: ignore[arg-type]
    rig.now_ms += 600_000
    rig.make(CheckBack).round()
    await turns(10)
    assert producer.sent == []
    assert len(rig.state.halves) == 0
    assert bounds(rig) == (0, 1)


async def test_a_decision_waits_for_a_deletion_in_flight(rig: Rig) -> None:
    """It would come to stand behind it, or alone."""
    await send(rig, "a")
    fields = await half(rig, queue=0)
    rig.log.auto_commit = False
    rig.context.proposer.submit(
        Proposal(commands=[DeleteTopicCommand("T")], on_done=lambda _: None, ends_batch=True)
    )
    connection = FakeConnection()
    processor = rig.make(EndTransactionProcessor, rig.tasks)
    asked = fields | {"commitOrRollback": "8"}
    rig.give(processor.handle, RequestCode.END_TRANSACTION, asked, b"", connection)
    assert [answer.code for answer in connection.sent] == [ResponseCode.SYSTEM_BUSY]
    rig.log.auto_commit = True
    rig.log.commit()
    await turns(10)
    assert (await end(rig, fields, "8")).code == ResponseCode.ILLEGAL_OPERATION


async def test_a_half_that_was_given_up_is_not_resumed_into_the_next_topic(rig: Rig) -> None:
    fields = await half(rig, queue=0)
    record = decode_record(rig.context.read_record(int(fields["commitLogOffset"])))
    copy = discarded_record(rig.replica, record)
    done: asyncio.Future[ProposalStatus | None] = asyncio.get_running_loop().create_future()
    command = DiscardCommand(int(fields["tranStateTableOffset"]))
    rig.context.proposer.submit(
        Proposal(records=[copy], commands=[command], on_done=done.set_result)
    )
    await done
    await delete(rig)
    await send(rig, "b")
    resume = {"msgId": f"{rig.context.store_host_hex}{copy.position:016X}"}
    processor = rig.make(MaintenanceProcessor)
    answer = await rig.ask(processor.resume_half, RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_retries_beside_those_of_another_group_are_passed_over(rig: Rig) -> None:
    """`%RETRY%g_T` is that of group `g_T` too, which keeps its own."""
    await send(rig, "a")
    await send(rig, "r", "%RETRY%g_T")
    for group, topic in (("g", "T"), ("g", "%RETRY%g_T"), ("g_T", "%RETRY%g_T")):
        rig.state.consumer_offsets[group, topic, 0] = 0
    await delete(rig)
    assert "%RETRY%g_T" in rig.state.topics
    await send(rig, "b")
    await send(rig, "new", "%RETRY%g_T")
    start = first_of_living_topic(rig.replica, "T", "%RETRY%g_T", 0, 0)
    assert start == 1, "of the topic that stands now"
    assert first_of_living_topic(rig.replica, "U", "%RETRY%g_T", 0, 0) == 0
    rig.state.consumer_offsets["g", "T", 0] = 0
    del rig.state.consumer_offsets["g_T", "%RETRY%g_T", 0]
    await delete(rig)
    assert "%RETRY%g_T" not in rig.state.topics


@pytest.mark.parametrize(
    ("stored_by", "is_wanted"),
    [("127.0.0.1:10911", False), ("10.0.0.7:10911", False), ("10.0.0.8:10911", True)],
)
async def test_a_retry_goes_with_the_topic_of_its_message_whoever_had_stored_that(
    rig: Rig, stored_by: str, is_wanted: bool
) -> None:
    """By this leader or by another one of the group; what another group has is none of ours."""
    rig.replica.broker_addresses = {"n1": "10.0.0.7:10911"}
    await send(rig, "a")
    (position, _, _) = UNIT.unpack(rig.queues.get("T", 0).read(0, 1))
    await delete(rig)
    host, _, port = stored_by.rpartition(":")
    properties = {
        PropertyName.RETRY_TOPIC: "T",
        PropertyName.ORIGIN_MESSAGE_ID: offset_msg_id(host, int(port), position),
    }
    assert RetryFilter(rig.replica).wants(properties) is is_wanted


@pytest.mark.parametrize(
    ("changed", "is_wanted"),
    [
        ({}, False),
        ({PropertyName.UNIQ_KEY: "b"}, True),
        ({PropertyName.RETRY_TOPIC: "U"}, True),
        ({"position": 1 << 40}, True),
        ({"position": (1 << 64) - 1}, True),
        ({"position": 7}, True),
    ],
)
async def test_a_retry_goes_with_its_topic_whatever_the_addresses_are_now(
    rig: Rig, changed: dict[str, str | int], is_wanted: bool
) -> None:
    """Settings may have names, ids have numbers, and a container gets another one each time."""
    rig.replica.store_address = "10.0.0.9:10911"
    rig.replica.broker_addresses = {"n1": "broker-1.brokers:10911"}
    await send(rig, "a")
    (position, _, _) = UNIT.unpack(rig.queues.get("T", 0).read(0, 1))
    await send(rig, "of U", "U")
    await delete(rig)
    await delete(rig, "U")
    named = {
        PropertyName.RETRY_TOPIC: "T",
        PropertyName.UNIQ_KEY: "a",
        "position": position,
    } | changed
    id_of_first = offset_msg_id("10.0.0.7", 10911, int(named.pop("position")))
    properties = {name: str(value) for name, value in named.items()}
    properties[PropertyName.ORIGIN_MESSAGE_ID] = id_of_first
    assert RetryFilter(rig.replica).wants(properties) is is_wanted


async def test_deletions_are_noted_of_topics_alone(rig: Rig) -> None:
    for number in range(5):
        rig.state._delete_topic(f"never-{number}", 100)
    assert len(rig.state.deletions) == 0
