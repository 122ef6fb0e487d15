"""Frames that real Java clients sent, sent again to a real broker.

`testdata/*.txt` hold what RocketMQ's Java clients 5.3.3 and 4.9.8 wrote on their connections to a
ledgermq broker of one node while a small program used them: one frame per line, its request's name
and its bytes in hexadecimal, in the order in which they came (of requests that repeat, the first;
of heartbeats with subscriptions, all).
The broker here gets the same bytes, except where a request names a log position, which is told by
the answers before it.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.config.config import BrokerConfig
from broker.process.server import Broker
from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand, SerializeType
from remoting.protocol.frame import FrameDecoder, decode_frame, encode
from remoting.records.message import decode_records

TESTDATA = Path(__file__).resolve().parents[2] / "campaigns" / "interop" / "testdata"
RECORDINGS = ["java-4.9.8-json", "java-5.3.3-binary", "java-5.3.3-json"]


def frames_of(recording: str) -> list[tuple[RequestCode, bytes]]:
    lines = (TESTDATA / f"{recording}.txt").read_text(encoding="ascii").splitlines()
    pairs = [line.split() for line in lines]
    return [(RequestCode[name], bytes.fromhex(text)) for name, text in pairs]


@pytest.mark.parametrize("recording", RECORDINGS)
def test_recorded_frames_are_read_and_written_without_loss(recording):
    frames = frames_of(recording)
    assert len(frames) > 20
    version = 409 if "4.9.8" in recording else 479
    for code, frame in frames:
        command = decode_frame(frame)
        assert (command.code, command.version, command.language) == (code, version, 0)
        assert decode_frame(encode(command)) == command
    encoding = SerializeType.ROCKETMQ if "binary" in recording else SerializeType.JSON
    assert {decode_frame(frame).serialize_type for _, frame in frames} == {encoding}


class Client:
    """One connection that writes recorded bytes and waits for what answers them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._waiting: list[RemotingCommand] = []
        self.pushed: list[RemotingCommand] = []

    async def ask(self, frame: bytes) -> RemotingCommand | None:
        """The answer; None to a oneway request, which has none."""
        command = decode_frame(frame)
        self._writer.write(frame)
        if command.is_oneway:
            return None
        async with asyncio.timeout(10):
            while True:
                for answer in self._waiting:
                    if answer.is_response and answer.opaque == command.opaque:
                        self._waiting.remove(answer)
                        return answer
                data = await self._reader.read(65_536)
                assert data, f"the broker closed on {RequestCode(command.code).name}"
                for received in self._decoder.feed(data):
                    (self._waiting if received.is_response else self.pushed).append(received)


@asynccontextmanager
async def broker_of_one(store: Path) -> AsyncIterator[tuple[Broker, Client]]:
    address = f"127.0.0.1:{free_port()}"
    raft = f"127.0.0.1:{free_port()}"
    config = BrokerConfig(
        group="broker-a",
        node="n0",
        listen=address,
        raft_listen=raft,
        peers={"n0": raft},
        store=store,
    )
    broker = Broker(config)
    await broker.start()
    serving = asyncio.get_running_loop().create_task(broker.serve())
    try:
        await until(lambda: broker.leadership.ready)
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        yield broker, Client(reader, writer)
        writer.close()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await broker.stop()


@pytest.mark.parametrize("recording", RECORDINGS)
async def test_a_java_clients_session_is_served_again(recording, tmp_path):
    async with broker_of_one(tmp_path / "store") as (broker, client):
        answers = await replay(client, broker, frames_of(recording))
        state = broker.replica.state

        assert {answer.code for answer in answers[RequestCode.SEND_MESSAGE_V2]} == {0}
        assert len(answers[RequestCode.SEND_MESSAGE_V2]) == 5, "and one that was oneway"
        (batch,) = answers[RequestCode.SEND_BATCH_MESSAGE]
        assert batch.ext_fields["msgId"].count(",") == 2
        assert state.halves.decision(0) == "commit"
        assert state.halves.decision(1) == "rollback"
        stored = sum(state.next_offset("Golden", queue) for queue in range(4))
        assert stored in {7, 8}, "the delayed message may have come already"
        assert state.next_offset("SCHEDULE_TOPIC_XXXX", 0) == 2, "one delayed, one sent back"

        (members,) = answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP]
        assert json.loads(members.body) == {"consumerIdList": ["127.0.0.1@goldenc"]}
        (locked,) = answers[RequestCode.LOCK_BATCH_MQ]
        assert len(json.loads(locked.body)["lockOKMQSet"]) >= 1
        pulls = answers[RequestCode.PULL_MESSAGE] + answers[RequestCode.LITE_PULL_MESSAGE]
        assert any(decode_records(pull.body) for pull in pulls)
        assert {pull.code for pull in pulls} <= {
            ResponseCode.SUCCESS,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
        }
        for code in (
            RequestCode.HEART_BEAT,
            RequestCode.UNREGISTER_CLIENT,
            RequestCode.GET_MAX_OFFSET,
            RequestCode.GET_MIN_OFFSET,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            RequestCode.QUERY_CONSUMER_OFFSET,
            RequestCode.CONSUMER_SEND_MSG_BACK,
        ):
            assert {answer.code for answer in answers[code]} == {0}, code.name


async def replay(
    client: Client, broker: Broker, frames: list[tuple[RequestCode, bytes]]
) -> dict[RequestCode, list[RemotingCommand]]:
    """Every answer by its request's kind."""
    answers: dict[RequestCode, list[RemotingCommand]] = defaultdict(list)
    halves: list[int] = []
    for code, recorded in frames:
        frame = recorded
        command = decode_frame(recorded)
        if code is RequestCode.END_TRANSACTION:
            frame = with_field(command, "commitLogOffset", halves.pop(0))
        elif code is RequestCode.CONSUMER_SEND_MSG_BACK:
            unit = broker.replica.queues.get("Golden", 2).read(0, 1)
            frame = with_field(command, "offset", int.from_bytes(unit[:8], "big"))
        answer = await client.ask(frame)
        if answer is not None:
            answers[code].append(answer)
            if "TRAN_MSG" in command.ext_fields.get("i", ""):
                halves.append(int(answer.ext_fields["msgId"][16:], 16))
    return answers


def with_field(command: RemotingCommand, name: str, value: int) -> bytes:
    assert name in command.ext_fields
    command.ext_fields[name] = str(value)
    return encode(command)
