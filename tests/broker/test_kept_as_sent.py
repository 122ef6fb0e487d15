"""What a broker keeps as it was sent: compressed bodies and their flags, names with a namespace."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from broker.groups.clients import ClientProcessor
from broker.pull.pull import PullProcessor
from broker.send.send import SendProcessor
from remoting.records import sys_flag
from remoting.records.message import decode_records
from tests.broker.rig import FakeConnection, Rig, pull_fields, send_fields

BODY = b"the same again and again " * 400


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.queues.close()


@pytest.mark.parametrize(
    ("flag", "body"),
    [
        (0x001, zlib.compress(BODY)),  # before there were types
        (0x101, lz4.frame.compress(BODY)),
        (0x201, zstandard.compress(BODY)),
        (0x301, zlib.compress(BODY)),
        (0x302, BODY),
    ],
)
async def test_a_body_and_its_flags_come_out_as_they_went_in(
    rig: Rig, flag: int, body: bytes
) -> None:
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    sent = await rig.ask(send.handle, 310, {**send_fields(), "f": str(flag)}, body)
    assert sent.code == 0
    answer = await rig.ask(pull.handle, 11, pull_fields())
    (record,) = decode_records(answer.body)
    assert (record.sys_flag, record.body) == (flag, body)
    assert bool(flag & 1) == bool(record.sys_flag & sys_flag.COMPRESSED)


async def test_names_with_a_namespace_are_names(rig: Rig) -> None:
    topic, group = "tenant%T", "tenant%G"
    send, pull = rig.make(SendProcessor), rig.make(PullProcessor, rig.tasks)
    clients = rig.make(ClientProcessor)
    assert (await rig.ask(send.handle, 310, send_fields(topic), b"x")).code == 0
    fields = {**pull_fields(), "topic": topic, "consumerGroup": group}
    answer = await rig.ask(pull.handle, 11, fields)
    assert [record.topic for record in decode_records(answer.body)] == [topic]
    beat = {
        "clientID": "c",
        "consumerDataSet": [
            {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "*"}]}
        ],
    }
    assert (await rig.ask(clients.heartbeat, 34, {}, json.dumps(beat).encode())).code == 0
    rig.log.commit()
    assert rig.context.proposer.topic(f"%RETRY%{group}") is not None


async def test_a_heartbeat_without_subscriptions_keeps_those_that_are_known(rig: Rig) -> None:
    clients, connection = rig.make(ClientProcessor), FakeConnection()
    consumer = {
        "groupName": "G",
        "subscriptionDataSet": [{"topic": "T", "subString": "a||b", "subVersion": 3}],
    }
    beats = [
        {"clientID": "c", "heartbeatFingerprint": 77, "consumerDataSet": [consumer]},
        {
            "clientID": "c", "heartbeatFingerprint": 77, "withoutSub": True,
            "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": []}],
        },
    ]  # fmt: skip
    for beat in beats:
        answer = await rig.ask(clients.heartbeat, 34, {}, json.dumps(beat).encode(), connection)
        assert answer.code == 0
        assert answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "false"
        known = rig.context.clients.subscriptions("G")
        assert known["T"].expression == "a||b"
