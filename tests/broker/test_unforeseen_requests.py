"""What a processor raises: what nobody foresaw is answered, a broken invariant ends the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.config.config import BrokerConfig
from broker.process.server import Broker
from broker.request.request import Request
from campaigns.rig.ports import free_port
from campaigns.rig.waiting import turns
from remoting.connections.rpc import RemotingClient
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand


@asynccontextmanager
async def broker_of_one(store: Path) -> AsyncIterator[tuple[Broker, asyncio.Task[None]]]:
    raft = f"127.0.0.1:{free_port()}"
    config = BrokerConfig(
        group="broker-a",
        node="n0",
        listen=f"127.0.0.1:{free_port()}",
        raft_listen=raft,
        peers={"n0": raft},
        store=store,
    )
    broker = Broker(config)
    await broker.start()
    serving = asyncio.get_running_loop().create_task(broker.serve())
    try:
        yield broker, serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await broker.stop()


def raising(error: Exception) -> object:
    def handle(_: Request) -> None:
        raise error

    return handle


async def ask(broker: Broker) -> RemotingCommand:
    client = RemotingClient()
    try:
        command = RemotingCommand(code=RequestCode.GET_MAX_OFFSET)
        return await client.request(broker.config.listen, command, 5_000)
    finally:
        await client.close()


async def test_a_request_that_nobody_foresaw_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_of_one(tmp_path) as (broker, serving):
        broker._handlers[RequestCode.GET_MAX_OFFSET] = raising(KeyError("surprise"))
        answer = await ask(broker)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "request 30 could not be handled: KeyError"
        assert "surprise" in caplog.text, "told with its traceback"
        assert not serving.done()


async def test_a_surprise_behind_a_wait_is_answered_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        await turns(1)
        raise ValueError("late surprise")

    async with broker_of_one(tmp_path) as (broker, serving):
        broker._handlers[RequestCode.GET_MAX_OFFSET] = lambda request: broker._tasks.answer(
            request, work
        )
        answer = await ask(broker)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "request 30 could not be handled: ValueError"
        assert "late surprise" in caplog.text
        assert not serving.done()


@pytest.mark.parametrize(
    ("remark", "body"), [(None, bytes(17 << 20)), ("\ud800", b"")], ids=["too large", "no text"]
)
async def test_an_answer_that_fits_no_frame_is_refused_instead(
    tmp_path: Path, remark: str | None, body: bytes
) -> None:
    async with broker_of_one(tmp_path) as (broker, serving):
        broker._handlers[RequestCode.GET_MAX_OFFSET] = lambda request: request.reply(
            ResponseCode.SUCCESS, remark, body=body
        )
        answer = await ask(broker)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("the answer can't be sent: ")
        assert not serving.done()


async def test_a_broken_invariant_ends_the_broker(tmp_path: Path) -> None:
    async with broker_of_one(tmp_path) as (broker, serving):
        broker._handlers[RequestCode.GET_MAX_OFFSET] = raising(AssertionError("offsets differ"))
        asking = asyncio.create_task(ask(broker))
        await asyncio.wait([serving], timeout=5)
        assert serving.done()
        with pytest.raises(ExceptionGroup, match="unhandled errors"):
            serving.result()
        await broker._server.stop()
        with pytest.raises(RemotingError):
            await asking
