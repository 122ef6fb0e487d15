"""The short way of sends against the long one: the same records, answers and refusals."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.entry.topics import Topic
from broker.request.request import UNFORESEEN, RefusedError, Request
from broker.send.send import SendProcessor
from campaigns.rig.waiting import turns
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand, SerializeType
from remoting.protocol.frame import encode
from tests.broker.rig import START_MS, FakeConnection, Rig

TOPICS = (
    Topic(name="T", read_queue_count=2, write_queue_count=3),
    Topic(name="Ordered", order=True),
    Topic(name="Twice", attributes={"dedupe": "false"}),
    Topic(name="Unwritable", perm=4),
    Topic(name="N" * 127),
    Topic(name="%RETRY%g"),
)
NAMES = [topic.name for topic in TOPICS]
KEYS = (
    "7F0000010A2B18B4AAC2348FC8E70001",
    *(f"k{number}" for number in range(9)),
    'k"',
    "k\\",
    "ключ",
    "k" * 65,
    "k" * 1_025,
)
PROPERTIES = (
    "WAIT\x01true\x02",
    "TAGS\x01TagA\x02",
    "TAGS\x01\x02",
    "KEYS\x01a b\x02",
    "xUNIQ_KEY\x01other\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02",
    "TRAN_MSG\x01false\x02",
    "DELAY\x012\x02",
    "TIMER_DELAY_MS\x01500\x02",
    "POP_CK\x01x\x02",
    "ümlaut\x01ж\x02",
    "p\x01" + "v" * 32_600 + "\x02",
    "no end",
    "",
)


class Side:
    """One broker, and what it answered."""

    def __init__(self, directory: Path, *, plain: bool) -> None:
        self.rig = Rig(directory)
        for topic in TOPICS:
            self.rig.replica.state.topics[topic.name] = topic
        self.processor = self.rig.make(SendProcessor)
        self.taken = 0
        takes = self.processor._plain.takes

        def counted(request: Request) -> bool:
            is_taken = plain and takes(request)
            self.taken += is_taken
            return is_taken

        self.processor._plain.takes = counted  # type: ignore[method-assign]
        self.connection = FakeConnection()

    def send(self, command: RemotingCommand) -> None:
        request = Request(self.connection, command)  # type: ignore[arg-type]
        try:
            self.processor.handle(request)
        except RefusedError as refused:
            request.refuse(refused)
        except UNFORESEEN as error:
            request.refuse_unforeseen(error)

    def told(self) -> list[bytes]:
        return [encode(command) for command in self.connection.sent]


ODD: dict[str, tuple[str | None, ...]] = {
    "b": (
        *NAMES[1:],
        "%RETRY%g",
        "%DLQ%g",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRACE_TOPIC",
        "none",
        None,
    ),
    "e": ("-1", "2", "3", "7", "8", " 1", "01", "", None),
    "f": ("2", "4", "8", "32", "769", "-1", "x", None),
    "g": (f"+{START_MS}", f" {START_MS}", "0", "-1", "٣", "1_0", "1" * 20, "", None),
    "h": ("1", "-1", "x", str(2**31), None),
    "i": (None, "", "UNIQ_KEY\x01k2\x02p\x01" + "v" * 32_740),
    "j": ("1", "-1", "x", "", None),
    "m": ("true", "TRUE", None),
    "ledgermqForwarded": ("10.0.0.9:7", "nowhere"),
    "z": ("1",),
}


@st.composite
def sends(draw: st.DrawFn) -> RemotingCommand:
    """A plain send, or one that is odd in a field or two."""
    keys = [f"UNIQ_KEY\x01{draw(st.sampled_from(KEYS))}\x02"]
    others = draw(st.lists(st.sampled_from(PROPERTIES), max_size=2))
    fields = {
        "a": "p",
        "b": draw(st.sampled_from(("T", "T", "Twice"))),
        "c": "TBW102",
        "d": "4",
        "e": draw(st.sampled_from(("0", "1"))),
        "f": draw(st.sampled_from(("0", "1"))),
        "g": str(START_MS + draw(st.integers(-5, 5))),
        "h": "0",
        "i": "".join(draw(st.permutations([*keys, *others]))),
        "j": "0",
        "k": "false",
        "l": "0",
        "m": "false",
        "n": "broker-a",
    }
    for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)):
        value = draw(st.sampled_from(ODD[name]))
        if value is None:
            fields.pop(name, None)
        else:
            fields[name] = value
    if fields.get("i") and draw(st.booleans()):
        fields["i"] = fields["i"].removesuffix("\x02")
    codes = (*[RequestCode.SEND_MESSAGE_V2] * 5, RequestCode.SEND_MESSAGE)
    return RemotingCommand(
        code=draw(st.sampled_from(codes)),
        opaque=draw(st.integers(0, 2**31 - 1)),
        flag=draw(st.sampled_from((0, 0, 0, FLAG_ONEWAY))),
        ext_fields=fields,
        body=b"b" * draw(st.sampled_from((0, 1, 100))),
        serialize_type=draw(st.sampled_from(SerializeType)),
    )


def copy_of(command: RemotingCommand) -> RemotingCommand:
    return RemotingCommand(
        code=command.code,
        opaque=command.opaque,
        flag=command.flag,
        ext_fields=dict(command.ext_fields),
        body=command.body,
        serialize_type=command.serialize_type,
    )


def java_send(**others: str) -> RemotingCommand:
    fields = {
        "a": "p",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": str(START_MS),
        "h": "0",
        "i": f"UNIQ_KEY\x01{KEYS[0]}\x02WAIT\x01true\x02TAGS\x01A",
        "j": "0",
        "k": "false",
        "l": "0",
        "m": "false",
        "n": "broker-a",
    }
    return RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, ext_fields={**fields, **others})


async def test_what_java_clients_send_goes_the_short_way(tmp_path: Path) -> None:
    side = Side(tmp_path, plain=True)
    side.send(java_send())
    assert side.taken == 1
    side.send(java_send(i="UNIQ_KEY\x012\x02", b="Twice", e="7"))
    assert side.taken == 2
    side.send(java_send(i="UNIQ_KEY\x013\x02DELAY\x011\x02"))
    side.send(java_send(i="UNIQ_KEY\x014\x02", b="Ordered", e="8"))
    assert side.taken == 2


async def test_a_plan_ends_with_its_topic_and_its_settings(tmp_path: Path) -> None:
    side = Side(tmp_path, plain=True)
    topics = side.rig.replica.state.topics
    for number, (queue_id, code) in enumerate((("2", 0), ("3", 1), ("3", 0))):
        if number == 2:
            topics["T"] = Topic(name="T", read_queue_count=4, write_queue_count=4)
        side.send(java_send(e=queue_id, i=f"UNIQ_KEY\x01k{number}\x02"))
        await turns(4)
        assert (side.connection.sent[-1].code == 0) is (code == 0)
    config = side.rig.replica.config
    side.rig.replica.change_settings(replace(config, message_size_max=1))
    command = java_send(i="UNIQ_KEY\x01k9\x02")
    command.body = b"12"
    side.send(command)
    assert side.connection.sent[-1].code == ResponseCode.MESSAGE_ILLEGAL


async def test_the_answer_passes_where_failpoints_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, answered = Side(tmp_path, plain=True), []
    reply = Request.reply

    def noted(request: Request, *arguments: Any, **named: Any) -> None:
        answered.append(request.command.code)
        reply(request, *arguments, **named)

    monkeypatch.setattr(Request, "reply", noted)
    side.send(java_send())
    await turns(4)
    assert side.taken == 1
    assert answered == [RequestCode.SEND_MESSAGE_V2]
    assert [answer.code for answer in side.connection.sent] == [0]


async def test_what_many_clients_and_topics_leave_behind_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.send.plain_send._TEMPLATES_MAX", 5)
    side = Side(tmp_path, plain=True)
    topics = side.rig.replica.state.topics
    for number in range(3):
        topics[f"T{number}"] = Topic(name=f"T{number}")
    for number in range(12):
        side.connection = FakeConnection(f"10.0.0.{number}:7000")
        side.send(java_send(b=f"T{number % 3}", i=f"UNIQ_KEY\x01k{number}\x02"))
        await turns(4)
        assert side.connection.sent[-1].code == 0
        assert len(side.processor._plain._templates) <= 5
    assert side.taken == 12


async def test_a_queue_beyond_those_that_a_topic_may_be_made_with_goes_the_long_way(
    tmp_path: Path,
) -> None:
    side = Side(tmp_path, plain=True)
    side.rig.replica.state.topics["T"] = Topic(name="T", write_queue_count=1_100)
    for number, queue_id in enumerate(("1023", "1024", "1100")):
        side.send(java_send(e=queue_id, i=f"UNIQ_KEY\x01k{number}\x02"))
    await turns(4)
    assert side.taken == 1
    assert sorted(answer.code for answer in side.connection.sent) == [0, 0, 29]


# Each loss of leadership is followed by a send, and by another leadership.
STEPS = st.one_of(
    *[sends()] * 6, st.sampled_from(("commit", "commit", "pass", "truncated", "unknown"))
)


async def take(side: Side, step: RemotingCommand | str) -> None:
    log = side.rig.log
    if isinstance(step, RemotingCommand):
        side.send(copy_of(step))
    elif step == "commit":
        log.commit()
    elif step == "pass":
        side.rig.now_ms += 1_000
    else:
        log.depose(
            ProposalStatus.TRUNCATED if step == "truncated" else ProposalStatus.LOST_LEADERSHIP
        )
        side.send(java_send(i="UNIQ_KEY\x01nobody\x02"))
        await turns(4)
        log.lead()
    await turns(4)


@settings(max_examples=200)
@given(steps=st.lists(STEPS, min_size=4, max_size=16))
def test_the_short_way_does_what_the_long_one_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[RemotingCommand | str]
) -> None:
    async def run() -> None:
        folder = tmp_path_factory.mktemp("sides")
        short, long = Side(folder / "short", plain=True), Side(folder / "long", plain=False)
        for side in (short, long):
            side.rig.log.auto_commit = False
            for step in [*steps, "commit"]:
                await take(side, step)
        assert short.told() == long.told()
        assert short.rig.log.data == long.rig.log.data

    asyncio.run(run())
