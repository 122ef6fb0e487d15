"""Request-reply: the answer reaches the client that asked, and its sender hears whether it did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.request.request import RefusedError, Request
from broker.send.reply import ReplyProcessor
from broker.send.send import SendProcessor
from campaigns.rig.waiting import turns, until
from remoting.errors import ConnectionLostError, RemotingError
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decode_record
from remoting.records.properties import parse_properties_text
from tests.broker.rig import START_MS, FakeConnection, Rig, send_fields

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


class Requester(FakeConnection):
    """The connection of a client that waits for a reply; answers what it is told to."""

    def __init__(self, answer: int | RemotingError = 0) -> None:
        super().__init__("127.0.0.1:6000")
        self.answer = answer
        self.pushed: list[RemotingCommand] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        assert timeout_ms == 10_000
        self.pushed.append(command)
        await self.may_answer.wait()
        if isinstance(self.answer, RemotingError):
            raise self.answer
        return command.response(self.answer)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.queues.close()


def processor(rig: Rig, requester: Requester | None) -> ReplyProcessor:
    if requester is not None:
        rig.context.clients.producer_seen("PG", "asker@1", requester, START_MS)  # type: ignore[arg-type]
    return rig.make(ReplyProcessor, rig.tasks, rig.make(SendProcessor))


def reply_fields(key: str = "R1", **properties: str) -> dict[str, str]:
    properties = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "asker@1", **properties}
    return send_fields(REPLY_TOPIC, key=key, **properties)


def stored(rig: Rig) -> list[bytes]:
    queue = rig.queues.find(REPLY_TOPIC, 0)
    if queue is None:
        return []
    bodies = []
    for offset in range(queue.next_offset):
        position = int.from_bytes(queue.read(offset, 1)[:8], "big")
        bodies.append(decode_record(rig.context.read_record(position)).body)
    return bodies


async def test_a_reply_is_pushed_stored_and_answered_with_its_place(rig: Rig) -> None:
    requester = Requester()
    answer = await rig.ask(processor(rig, requester).handle, 325, reply_fields(), b"pong")
    assert answer.code == 0
    assert answer.ext_fields["queueOffset"] == "0"
    assert len(answer.ext_fields["msgId"]) == 32
    (push,) = requester.pushed
    assert (push.code, push.body) == (326, b"pong")
    fields = push.ext_fields
    assert fields["topic"] == REPLY_TOPIC
    assert fields["bornHost"] == "127.0.0.1:50001"
    assert fields["storeHost"] == "127.0.0.1:10911"
    assert fields["storeTimestamp"] == str(START_MS)
    properties = parse_properties_text(fields["properties"])
    assert properties["CORRELATION_ID"] == "c1"
    assert properties["PUSH_REPLY_TIME"] == str(START_MS)
    assert stored(rig) == [b"pong"]


async def test_both_spellings_are_taken(rig: Rig) -> None:
    letters = reply_fields()
    names = dict(zip("abcdefghijk", (
        "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
        "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
    ), strict=True))  # fmt: skip
    full = {names[letter]: value for letter, value in letters.items() if letter in names}
    requester = Requester()
    answer = await rig.ask(processor(rig, requester).handle, 324, full, b"pong")
    assert answer.code == 0
    assert requester.pushed[0].ext_fields["queueId"] == "0"


@pytest.mark.parametrize(
    ("requester", "told"),
    [
        (None, "channel of <asker@1> not found"),
        (1, "push reply message to asker@1fail."),
        (ConnectionLostError("lost"), "push reply message to asker@1fail."),
    ],
)
async def test_who_was_not_reached_is_told(
    rig: Rig, requester: int | RemotingError | None, told: str
) -> None:
    asker = None if requester is None else Requester(requester)
    answer = await rig.ask(processor(rig, asker).handle, 325, reply_fields(), b"pong")
    assert answer.code == 1
    assert told in (answer.remark or "")


async def test_a_reply_to_nobody_is_told(rig: Rig) -> None:
    answer = await rig.ask(
        processor(rig, Requester()).handle, 325, send_fields(REPLY_TOPIC), b"pong"
    )
    assert answer.code == 1
    assert "REPLY_TO_CLIENT] is null" in (answer.remark or "")


async def test_a_reply_that_is_sent_again_is_stored_once(rig: Rig) -> None:
    requester = Requester()
    handle = processor(rig, requester).handle
    first = await rig.ask(handle, 325, reply_fields(), b"pong")
    again = await rig.ask(handle, 325, reply_fields(), b"pong")
    assert first.ext_fields["msgId"] == again.ext_fields["msgId"]
    assert len(requester.pushed) == 2
    assert stored(rig) == [b"pong"]


@pytest.mark.parametrize("accepted", [0, 1])
async def test_a_reply_is_answered_once_and_not_before_the_push(rig: Rig, accepted: int) -> None:
    requester, connection = Requester(accepted), FakeConnection()
    requester.may_answer.clear()
    handle = processor(rig, requester).handle
    rig.give(handle, 325, reply_fields(), b"pong", connection)
    await until(lambda: stored(rig) == [b"pong"])
    await turns(4)
    assert connection.sent == []
    requester.may_answer.set()
    await until(lambda: connection.sent != [])
    await turns(4)
    assert [answer.code for answer in connection.sent] == [accepted]


async def test_what_became_of_storing_does_not_unsay_what_was_pushed(rig: Rig) -> None:
    requester = Requester()
    handle = processor(rig, requester).handle
    rig.log.auto_commit = False
    asking = asyncio.create_task(rig.ask(handle, 325, reply_fields(), b"pong"))
    while not requester.pushed:
        await turns(1)
    assert not asking.done()
    rig.log.depose()
    answer = await asking
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "0")


async def test_only_the_leader_takes_replies_and_bad_ones_are_not_pushed(rig: Rig) -> None:
    requester = Requester()
    handle = processor(rig, requester).handle
    unknown = {**reply_fields(), "b": "nowhere", "c": "nothing"}
    assert (await rig.ask(handle, 325, unknown)).code == 17
    assert (await rig.ask(handle, 325, {**reply_fields(), "e": "9"})).code == 29
    rig.log.depose()
    assert (await rig.ask(handle, 325, reply_fields())).code == 14
    assert requester.pushed == []


async def test_pushes_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.send.reply._PUSHES_MAX", 2)
    requester = Requester()
    requester.may_answer.clear()
    handle, connection = processor(rig, requester).handle, FakeConnection()
    for number in range(2):
        rig.give(handle, 325, reply_fields(f"R{number}"), b"", connection)
    command = RemotingCommand(code=325, ext_fields=reply_fields("R3"))
    with pytest.raises(RefusedError, match="being pushed already"):
        handle(Request(connection, command))  # type: ignore[arg-type]
    requester.may_answer.set()
    await until(lambda: len(connection.sent) >= 2)
    assert (await rig.ask(handle, 325, reply_fields("R3"))).code == 0
